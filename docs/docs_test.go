// Package docs holds the documentation. The tests check the parts that a program can check: links, commands, flags and
// keys.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = ".."

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// files returns the paths, relative to the repository's root, of all files with one of the extensions, except test
// data.
func files(t *testing.T, extensions ...string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "build" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !d.IsDir() && slices.Contains(extensions, filepath.Ext(path)) {
			rel, err := filepath.Rel(root, path)
			all = append(all, rel)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// adminPages are the pages for administrators.
var adminPages = []string{
	"docs/install.md", "docs/configure.md", "docs/configure/slices.md", "docs/configure/decision-table.md",
	"docs/configure/learning.md", "docs/configure/watcher.md", "docs/configure/isolation.md", "docs/operate.md",
	"docs/troubleshoot.md", "docs/plan-capacity.md",
}

// adminText returns the text of all pages for administrators.
func adminText(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, page := range adminPages {
		text.WriteString(read(t, page))
	}
	return text.String()
}

// pages returns the paths of the Markdown files.
func pages(t *testing.T) []string {
	t.Helper()
	all := files(t, ".md")
	for _, must := range append([]string{"README.md", "docs/user-guide.md"}, adminPages...) {
		if !slices.Contains(all, must) {
			t.Fatalf("%s is not among the pages", must)
		}
	}
	return all
}

// matches returns the text of the first group for every match.
func matches(text, expression string) []string {
	var all []string
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// indented matches the lines of code blocks, in which [text](target) is not a link. Tables and lists of this project do
// not start with four blanks.
var indented = regexp.MustCompile(`(?m)^ {4}.*$`)

// anchors returns the ids that GitHub gives to a page's headings.
func anchors(page string) []string {
	var all []string
	for _, h := range matches(indented.ReplaceAllString(page, ""), `(?m)^#+ +(.*)$`) {
		id := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(h), "")
		all = append(all, strings.ReplaceAll(id, " ", "-"))
	}
	return all
}

func TestLinksResolve(t *testing.T) {
	for _, page := range pages(t) {
		text := indented.ReplaceAllString(read(t, page), "")
		for _, target := range matches(text, `\]\(([^)\s]+)\)`) {
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			path := page
			if file != "" {
				path = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, target)
			} else if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, path, anchor)
			}
		}
	}
}

// textWidth limits the columns of a line of Markdown.
const textWidth = 100

// TestMarkdownLines checks that the lines of pages have at most textWidth columns. Only tables, code and quoted
// messages may be longer.
func TestMarkdownLines(t *testing.T) {
	for _, page := range pages(t) {
		n := 0
		for line := range strings.SplitSeq(read(t, page), "\n") {
			n++
			_, item, numbered := strings.Cut(line, ". ")
			long := strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") ||
				numbered && strings.HasPrefix(item, "`")
			if w := utf8.RuneCountInString(line); w > textWidth && !long {
				t.Errorf("%s:%d has %d columns, more than %d", page, n, w, textWidth)
			}
		}
	}
}

// commands returns the names of the subcommands and flags that the program <name> registers with cobra.
func commands(t *testing.T, name string) (subcommands, flags []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "cmd", name, "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources in cmd/%s (%v)", name, err)
	}
	if name != "caelum" {
		sources = append(sources, filepath.Join(root, "internal/daemon/version.go"),
			filepath.Join(root, "internal/daemon/config.go"))
	}
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		group := groupOf(t, path)
		for _, use := range matches(string(data), `\bUse: +"([a-z-]+)`) {
			switch {
			case use == name:
			case group == "" || use == group:
				subcommands = append(subcommands, use)
			default:
				subcommands = append(subcommands, group+" "+use)
			}
		}
		flags = append(flags, matches(string(data), `Var\(&[\w.]+, "([a-z-]+)",`)...)
	}
	return subcommands, flags
}

// groupOf returns the command that the other commands of a file belong to: repo.go and repo_*.go have "caelum repo" and
// its subcommands. It returns "" for a file without such a command.
func groupOf(t *testing.T, path string) string {
	t.Helper()
	stem, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".go"), "_")
	data, err := os.ReadFile(filepath.Join(filepath.Dir(path), stem+".go"))
	if uses := matches(string(data), `\bUse: +"([a-z-]+)`); err != nil || len(uses) == 0 || uses[0] != stem {
		return ""
	}
	return stem
}

func TestAdminPagesNameEveryCommandAndFlag(t *testing.T) {
	guide := adminText(t)
	for _, name := range []string{"caelum", "caelumd", "caelum-watch"} {
		subcommands, flags := commands(t, name)
		if len(subcommands) == 0 || len(flags) == 0 {
			t.Fatalf(
				"cmd/%s: found the commands %q and the flags %q: does it still use cobra's literals?",
				name,
				subcommands,
				flags,
			)
		}
		for _, sub := range subcommands {
			if !regexp.MustCompile(`\b` + name + " " + sub + `\b`).MatchString(guide) {
				t.Errorf("the pages for administrators do not mention %s %s", name, sub)
			}
		}
		for _, flag := range flags {
			if !strings.Contains(guide, "--"+flag) {
				t.Errorf("the pages for administrators do not mention --%s of %s", flag, name)
			}
		}
	}
}

// TestNamedCommandsExist checks that every command which a page or a message refers to exists.
func TestNamedCommandsExist(t *testing.T) {
	for _, name := range []string{"caelum", "caelumd", "caelum-watch"} {
		subcommands, _ := commands(t, name)
		// exists is asked for two words, of which the second may be an argument.
		exists := func(words string) bool {
			first, second, two := strings.Cut(words, " ")
			group := slices.ContainsFunc(
				subcommands,
				func(sub string) bool { return strings.HasPrefix(sub, first+" ") },
			)
			if two && group && second != "" {
				return slices.Contains(subcommands, words)
			}
			return slices.Contains(subcommands, first)
		}
		check := func(paths []string, expression string) {
			for _, path := range paths {
				for _, sub := range matches(read(t, path), expression) {
					if !exists(sub) && !strings.HasSuffix(path, "_test.go") {
						t.Errorf("%s names the command %s %s, which does not exist", path, name, sub)
					}
				}
			}
		}
		check(pages(t), "[`'$] ?"+name+" ([a-z][a-z-]+(?: [a-z][a-z-]+)?)")
		check(files(t, ".go", ".c", ".h", ".lua"), "[`']"+name+" ([a-z][a-z-]+(?: [a-z][a-z-]+)?)[^`'\\n]*[`']")
	}
}

// TestEveryCheckIsDocumented checks that the table in docs/troubleshoot.md and the code have the same checks of `caelum
// doctor`.
func TestEveryCheckIsDocumented(t *testing.T) {
	_, source, _ := strings.Cut(read(t, "internal/cli/doctor/doctor.go"), "\nfunc checks() []check {")
	source, _, _ = strings.Cut(source, "\n}\n")
	checks := matches(source, `(?m)^\t\t\{\s*"([a-zA-Z ]+)",`)
	_, table, _ := strings.Cut(read(t, "docs/troubleshoot.md"), "\n| check | reports an error or a warning if |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, names := range matches(table, `(?m)^\| ([a-zA-Z, ]+) \|`) {
		documented = append(documented, strings.Split(names, ", ")...)
	}
	slices.Sort(checks)
	slices.Sort(documented)
	if len(checks) < 30 || !slices.Equal(checks, documented) {
		t.Errorf("caelum doctor has the checks %q, and docs/troubleshoot.md has %q", checks, documented)
	}
}

// TestEveryVerdictIsDocumented checks that docs/troubleshoot.md has a row for each verdict of `caelum explain`.
func TestEveryVerdictIsDocumented(t *testing.T) {
	verdicts := matches(read(t, "internal/core/plan/explain.go"), `Verdict += "([a-z-]+)"`)
	if len(verdicts) < 10 {
		t.Fatalf("internal/core/plan has the verdicts %q", verdicts)
	}
	page := read(t, "docs/troubleshoot.md")
	for _, verdict := range verdicts {
		if !strings.Contains(page, "\n| `"+verdict+"` |") {
			t.Errorf("docs/troubleshoot.md does not explain the verdict %s", verdict)
		}
	}
}

// TestSecurityNamesTests checks that every test and fuzz target which the security page names as evidence exists.
func TestSecurityNamesTests(t *testing.T) {
	var sources strings.Builder
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			sources.WriteString(read(t, path))
		}
	}
	names := matches(read(t, "docs/security.md"), "`((?:Test|Fuzz)\\w+)")
	if len(names) < 20 {
		t.Fatalf("the security page names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(sources.String(), "func "+name) {
			t.Errorf("docs/security.md names %s, which does not exist", name)
		}
	}
}
