package lint

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	root       = "../.."
	goWidth    = 120 // columns of a line of Go, with tab stops every tabWidth columns
	textWidth  = 100 // columns of a line of Markdown
	tabWidth   = 4
	quoteStart = "`" // a list item that quotes one message is as long as the message
)

// tracked returns the files of the repository that match a pattern of git, test data left out.
func tracked(t *testing.T, pattern string) (all []string) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git work tree: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if !strings.Contains("/"+name, "/testdata/") {
			all = append(all, name)
		}
	}
	if len(all) < 10 {
		t.Fatalf("git knows %d files of %s", len(all), pattern)
	}
	return all
}

// lines calls check with each line of a file and its number.
func lines(t *testing.T, name string, check func(n int, line string)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if os.IsNotExist(err) {
		return // deleted and not yet committed
	}
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		check(n, scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// columns returns the width of a line, with tab stops every tabWidth columns.
func columns(line string) (w int) {
	for _, r := range line {
		if r == '\t' {
			w += tabWidth - 1 - w%tabWidth
		}
		w++
	}
	return w
}

// TestGoLines: rows of tables in raw strings may be longer.
func TestGoLines(t *testing.T) {
	for _, name := range tracked(t, "*.go") {
		lines(t, name, func(n int, line string) {
			if w := columns(line); w > goWidth && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns, more than %d", name, n, w, goWidth)
			}
		})
	}
}

// TestMarkdownLines: tables, code and quoted messages may be longer.
func TestMarkdownLines(t *testing.T) {
	for _, name := range tracked(t, "*.md") {
		lines(t, name, func(n int, line string) {
			_, item, numbered := strings.Cut(line, ". ")
			long := strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") ||
				numbered && strings.HasPrefix(item, quoteStart)
			if w := utf8.RuneCountInString(line); w > textWidth && !long {
				t.Errorf("%s:%d has %d columns, more than %d", name, n, w, textWidth)
			}
		})
	}
}
