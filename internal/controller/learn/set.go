package learn

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"caelum/internal/controller/decisions"
)

// keyWords maps the first word of each line that SetLine can write to the number of words that identify the line.
var keyWords = map[string]int{
	"partition": 2, "default": 1, "whole": 1, "grow": 1, "max_nodes": 1, "max_cpus": 1, "size_message": 1,
	"bypass": 1, "alias": 2, "shard": 2, "per_gpu": 2, "args": 2, "key": 2, "user": 2, "site": 2,
	"name": 2, "owner": 2,
}

// plainWord matches a word of the table.
var plainWord = regexp.MustCompile(`^[^\s#[:cntrl:]]+$`)

// SetLine writes one line into the decision table at path and increments the table's generation. The line replaces any
// lines for the same key, including a learned one; otherwise, it is added to the administrator's lines. A key line also
// replaces the learned args line of its key, which would take precedence. If the new table would have too many lines or
// bytes, the oldest learned lines are omitted. The file is replaced atomically and keeps its owner and mode. SetLine
// returns false if the table already contains the line. It returns an error, and changes nothing, if job_submit.lua
// would reject the resulting table.
func SetLine(path string, words []string) (changed bool, err error) {
	if len(words) < 2 {
		return false, errWords
	}
	return edit(path, words, func(t table) (own, learned string) {
		own, done := t.ownWith(words)
		if !done {
			own += strings.Join(words, " ") + "\n"
		}
		learned = without(t.learned, words)
		if words[0] == "key" {
			learned = without(learned, []string{"args", words[1]})
		}
		return own, learned
	})
}

// RemoveLine is like SetLine, but removes the administrator's lines for the key in words. It returns false if there are
// none. It does not remove learned lines, because the next update would add them again.
func RemoveLine(path string, words []string) (changed bool, err error) {
	if len(words) == 0 || len(words) != keyWords[words[0]] {
		return false, errKey
	}
	return edit(path, words, func(t table) (own, learned string) { return without(t.own, words), t.learned })
}

var (
	errWords = errors.New("the line must begin with partition, default, whole, grow, max_nodes, max_cpus, " +
		"size_message, bypass, alias, shard, per_gpu, args, key, user or site, and contain a value")
	errKey = errors.New("identify the line by its first word and, for partition, alias, shard, per_gpu, args, key, " +
		"user and site lines, also by its second word")
)

// edit replaces the lines of the table at path with those that change returns. words are the words of the changed line.
func edit(path string, words []string, change func(table) (own, learned string)) (changed bool, err error) {
	if keyWords[words[0]] == 0 {
		return false, errWords
	}
	for _, w := range words {
		if !plainWord.MatchString(w) {
			return false, fmt.Errorf("%.40q is not a valid word in the table: omit blanks and #", w)
		}
	}
	t, info, err := readTable(path)
	if err != nil {
		return false, err
	}
	own, learned := change(t)
	if own == t.own && learned == t.learned {
		return false, nil
	}
	text := fmt.Sprintf("%s%d\n%s", head, t.generation+1, own)
	if t.marked {
		text += marker
		text += newest(learned, decisions.MaxLines-strings.Count(text, "\n"), decisions.MaxBytes-len(text))
	}
	if faults := decisions.Check(text); len(faults) > 0 {
		return false, fmt.Errorf("job_submit.lua would reject the table: %s", faults[0].Text)
	}
	return true, replace(path, info, text)
}

// ownWith returns the administrator's lines, with the first line for the key in words replaced and its other lines
// removed. It keeps the comment on the replaced line. done is false if no line was replaced.
func (t table) ownWith(words []string) (own string, done bool) {
	var b strings.Builder
	for line := range strings.Lines(t.own) {
		switch {
		case !sameKey(line, words):
			b.WriteString(line)
		case !done:
			done = true
			if same(line, words) {
				b.WriteString(line)
				continue
			}
			b.WriteString(strings.Join(words, " "))
			if _, comment, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "#"); ok {
				b.WriteString(" #" + comment)
			}
			b.WriteString("\n")
		}
	}
	return b.String(), done
}

// without returns the lines, except those for the key in words.
func without(lines string, words []string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		if !sameKey(line, words) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// newest returns the first learned lines, up to the given number of lines and bytes. These are the newest lines,
// because a table lists the newest lines first.
func newest(learned string, lines, bytes int) string {
	end := 0
	for line := range strings.Lines(learned) {
		if lines--; lines < 0 || end+len(line) > bytes {
			break
		}
		end += len(line)
	}
	return learned[:end]
}

// sameKey reports whether the line has the same key as words: the first word, and in some lines also the second.
func sameKey(line string, words []string) bool {
	n := keyWords[words[0]]
	has := lineWords(line)
	return len(has) >= n && slices.Equal(has[:n], words[:n])
}

func same(line string, words []string) bool { return slices.Equal(lineWords(line), words) }

// lineWords returns the words of a line without its comment.
func lineWords(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	return strings.Fields(line)
}

// CheckTable returns the faults of the decision table at path. The error is a noTable if the file does not exist.
func CheckTable(path string) ([]decisions.Fault, error) {
	text, _, err := readText(path)
	if err != nil {
		return nil, err
	}
	return decisions.Check(text), nil
}

// readText returns the content of the table at path.
func readText(path string) (string, os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, &noTable{path}
	} else if err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > decisions.MaxBytes {
		return "", nil, fmt.Errorf(
			"%s is not a decision table: a decision table must be a regular file of at most %d bytes",
			path, decisions.MaxBytes)
	}
	text, err := os.ReadFile(path)
	return string(text), info, err
}
