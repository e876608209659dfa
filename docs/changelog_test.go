package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// changes is the directory with one file for each change since the last release. At a release, their text moves to
// CHANGELOG.md (CONTRIBUTING.md, "Make a release").
const changes = "docs/changelog/unreleased/"

// maxChange limits the lines of a change's text, so that it says only what an administrator or a user must know.
const maxChange = 12

var (
	changeName  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*\.md$`)
	changeTitle = regexp.MustCompile(`^# (Action|Security|New|Change|Fix): \S.{0,90}[^ .]$`)
)

// faultInChange returns what is wrong with a file that describes a change, or "".
func faultInChange(name, text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	switch {
	case !changeName.MatchString(name):
		return "the name does not consist of lower-case words with hyphens between them, and .md"
	case !changeTitle.MatchString(lines[0]):
		return "the first line is not \"# KIND: title\", where KIND is Action, Security, New, Change or Fix"
	case len(lines) < 3 || lines[1] != "" || lines[2] == "":
		return "the text does not begin in the third line"
	case len(lines)-2 > maxChange:
		return "the text is too long"
	case slices.ContainsFunc(lines[1:], func(line string) bool { return strings.HasPrefix(line, "#") }):
		return "the text has a heading"
	case !strings.HasSuffix(text, "\n") || lines[len(lines)-1] == "":
		return "the file does not end with one newline"
	}
	return ""
}

// TestChanges checks the form of the files that describe the changes since the last release.
func TestChanges(t *testing.T) {
	for _, page := range files(t, ".md") {
		if name, found := strings.CutPrefix(page, changes); found {
			if fault := faultInChange(name, read(t, page)); fault != "" {
				t.Errorf("%s: %s", page, fault)
			}
		} else if filepath.Dir(page) == filepath.Clean(changes+"..") {
			t.Errorf("%s: move it to %s", page, changes)
		}
	}
	if strings.Contains(read(t, "CHANGELOG.md"), "## Unreleased") {
		t.Errorf("CHANGELOG.md has unreleased changes; move each of them to a file in %s", changes)
	}
}

func TestFaultInChange(t *testing.T) {
	const good = "# Fix: The agent starts\n\nIt did not.\n"
	if fault := faultInChange("agent-starts.md", good); fault != "" {
		t.Error(fault)
	}
	for _, c := range []struct{ name, text string }{
		{"Agent.md", good},
		{"a.md", "# The agent starts\n\nIt did not.\n"},
		{"a.md", "# Fix: The agent starts.\n\nIt did not.\n"},
		{"a.md", "# Fix: The agent starts\nIt did not.\n"},
		{"a.md", "# Fix: The agent starts\n\n" + strings.Repeat("It did not.\n", maxChange+1)},
		{"a.md", good + "## More\n"},
		{"a.md", good + "\n"},
		{"a.md", strings.TrimSuffix(good, "\n")},
		{"a.md", ""},
	} {
		if faultInChange(c.name, c.text) == "" {
			t.Errorf("%s is valid: %q", c.name, c.text)
		}
	}
}
