package setup

import (
	"bytes"
	"slices"
	"strings"
)

// file is one of the site's files, together with the changes to it.
type file struct {
	path     string
	original []byte // the content of the site's file
	old      []byte // the content before the edits: original, in which some lines are split
	added    []span // the lines that are in old, but not in original
	fresh    bool   // true if the file does not exist
	edits    []edit
	tail     []string // lines to add at the end of the file
}

// span is a range of bytes in a file.
type span struct{ from, to int }

// edit replaces old[from:to] with text.
type edit struct {
	from, to int
	text     string
}

// eol returns the line ending used by most lines of the file.
func (f *file) eol() string {
	if crlf := bytes.Count(f.old, []byte("\r\n")); 2*crlf > bytes.Count(f.old, []byte("\n")) {
		return "\r\n"
	}
	return "\n"
}

// replace replaces the value of a word.
func (f *file) replace(w word, value string) { f.edits = append(f.edits, edit{w.from, w.to, value}) }

// extend adds text after the last word of a line, before a comment.
func (f *file) extend(l line, text string) {
	at := l.words[len(l.words)-1].end
	f.edits = append(f.edits, edit{at, at, text})
}

// insert adds a line below another line.
func (f *file) insert(l line, text string) {
	f.edits = append(f.edits, edit{l.to, l.to, f.eol() + text})
}

// remove deletes a line, including its line ending.
func (f *file) remove(l line) {
	to := l.to
	if i := bytes.IndexByte(f.old[to:], '\n'); i >= 0 {
		to += i + 1
	}
	f.edits = append(f.edits, edit{l.from, to, ""})
}

// result returns the changed content of the file.
func (f *file) result() []byte {
	slices.SortStableFunc(f.edits, func(x, y edit) int { return x.from - y.from })
	var b bytes.Buffer
	at := 0
	for _, e := range f.edits {
		b.Write(f.old[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.Write(f.old[at:])
	if len(f.tail) == 0 {
		return b.Bytes()
	}
	if text := b.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
		b.WriteString(f.eol())
	}
	b.WriteString(strings.Join(f.tail, f.eol()) + f.eol())
	return b.Bytes()
}
