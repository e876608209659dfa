package setup

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// line is a logical line of slurm.conf or gres.conf: one physical line, or several that are joined by backslashes at
// their ends. The syntax is defined by Slurm's parse_config.c: the rest of a physical line after an unescaped # is a
// comment, and a backslash in a comment does not continue the line.
type line struct {
	in     *file
	number int // the number of the first physical line, counted from 1
	// in.old[from:to] is the text of all physical lines, without the last line ending.
	from, to int
	words    []word
	text     string // the logical line, without comments
	open     bool   // true if the file ends with a backslash that would continue the line
}

// word is a key=value pair. Slurm ignores the case of keys.
type word struct {
	key, value string
	// in.old[from:to] is the value without quotes, and end is the end of the word. split is true if the value continues
	// on another physical line, or contains an escaped character.
	from, to, end int
	split         bool
}

// pair matches a key=value word, as the regular expression in Slurm's parse_config.c does. It also matches the +=, -=
// and similar operators.
var pair = regexp.MustCompile(
	`([[:alnum:]_.]+)[[:space:]]*[-*+/]?=[[:space:]]*(?:"([^"]*)"|([^[:space:]]+))(?:[[:space:]]|$)`)

// is reports whether the line's first key is key. The first key determines the meaning of the line.
func (l line) is(key string) bool { return len(l.words) > 0 && strings.EqualFold(l.words[0].key, key) }

// get returns the last word with the given key.
func (l line) get(key string) (found word, ok bool) {
	for _, w := range l.words {
		if strings.EqualFold(w.key, key) {
			found, ok = w, true
		}
	}
	return found, ok
}

// value returns the value of the last word with the given key, or "".
func (l line) value(key string) string {
	w, _ := l.get(key)
	return w.value
}

// form returns the line's words in a canonical form (lower-case keys and single spaces), so that equivalent lines can
// be compared.
func (l line) form() string {
	var parts []string
	for _, w := range l.words {
		parts = append(parts, strings.ToLower(w.key)+"="+w.value)
	}
	return strings.Join(parts, " ")
}

// parse returns the logical lines of a file.
func parse(f *file) (lines []line) {
	for at, number := 0, 1; at < len(f.old); {
		l := line{in: f, number: number, from: at}
		var text []byte
		var raw []int // the offset in f.old of each byte in text
		for {
			end := len(f.old)
			if i := bytes.IndexByte(f.old[at:], '\n'); i >= 0 {
				end = at + i
			}
			kept := uncommented(f.old[at:end])
			code, more := continued(kept)
			for i := range code {
				raw = append(raw, at+i)
			}
			text = append(text, code...)
			l.to = end
			at = end + 1
			// The first byte of an added line is the line ending before it.
			if !slices.ContainsFunc(f.added, func(s span) bool { return s.from <= end && end < s.to }) {
				number++
			}
			l.open = more && at >= len(f.old)
			if !more || at >= len(f.old) {
				break
			}
		}
		if l.to > l.from && f.old[l.to-1] == '\r' {
			l.to--
		}
		l.text = string(text)
		l.words = words(l.text, raw)
		lines = append(lines, l)
	}
	return lines
}

// uncommented returns the part of a physical line before the first # that follows an even number of backslashes.
func uncommented(text []byte) []byte {
	slashes := 0
	for i, c := range text {
		switch {
		case c == '#' && slashes%2 == 0:
			return text[:i]
		case c == '\\':
			slashes++
		default:
			slashes = 0
		}
	}
	return text
}

// continued reports whether a physical line without its comment ends with an odd number of backslashes, and returns the
// text without the last backslash. The backslash may be followed by spaces.
func continued(text []byte) ([]byte, bool) {
	end := bytes.TrimRight(text, " \t\r\v\f")
	n := len(end) - len(bytes.TrimRight(end, `\`))
	if n%2 == 0 {
		return text, false
	}
	return end[:len(end)-1], true
}

func words(text string, raw []int) (all []word) {
	for at := 0; ; {
		m := pair.FindStringSubmatchIndex(text[at:])
		if m == nil {
			return all
		}
		from, to := m[4], m[5]
		if from < 0 {
			from, to = m[6], m[7]
		}
		quote := 0
		if m[4] >= 0 {
			quote = 1
		}
		w := word{key: text[at+m[2] : at+m[3]], value: text[at+from : at+to]}
		if to > from {
			w.from, w.to = raw[at+from], raw[at+to-1]+1
		} else { // only a quoted value can be empty
			w.from = raw[at+from-1] + 1
			w.to = w.from
		}
		w.end = raw[at+to+quote-1] + 1
		w.split = w.to-w.from != to-from || w.end-w.to != quote || strings.Contains(w.value, `\`)
		all = append(all, w)
		at += to + quote
	}
}

// includeForm matches an Include line. Slurm accepts spaces before Include only in some releases.
var includeForm = regexp.MustCompile(`(?i)^([[:space:]]*)include[[:space:]]+([^[:space:]]+)`)

// load reads a configuration file and the files that it includes, and returns their logical lines in Slurm's order.
// Relative paths refer to the directory of slurm.conf. top is nil if the file cannot be read or has already been read.
func (m *merger) load(name string) (top *file, lines []line) {
	top = m.open(name)
	if top == nil {
		return nil, nil
	}
	m.splitLines(top)
	for _, l := range parse(top) {
		if l.open {
			m.problem(l, "the file ends with a backslash; remove it")
		}
		found := includeForm.FindStringSubmatch(l.text)
		if found == nil {
			lines = append(lines, l)
			continue
		}
		target := found[2]
		switch {
		case found[1] != "":
			m.problem(l, "there are spaces before Include; remove them")
			continue
		case strings.ContainsAny(target, `%*?\"`):
			m.problem(l, fmt.Sprintf("setup cannot find the file %s; replace the pattern with a path", target))
			continue
		case !path.IsAbs(target):
			target = path.Join(path.Dir(m.SlurmConf), target)
		}
		sub, more := m.load(target)
		if sub != nil && sub.fresh {
			m.problem(l, target+" does not exist; correct the line")
		}
		lines = append(lines, more...)
	}
	return top, lines
}
