package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const referenceDir = "../../docs/reference"

// TestReference checks that the pages in docs/reference match the help texts. Each command has one page. The -update
// flag rewrites the pages.
func TestReference(t *testing.T) {
	pages := map[string]string{"README.md": referenceIndex(newRoot())}
	for _, cmd := range documented(newRoot()) {
		pages[referenceName(cmd)] = referencePage(t, cmd)
	}
	old, err := filepath.Glob(filepath.Join(referenceDir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if _, ok := pages[filepath.Base(path)]; ok {
			continue
		}
		if !*update {
			t.Errorf("no command has the page %s; remove the page with: go test ./cmd/caelum -run TestReference "+
				"-update",
				path)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range pages {
		path := filepath.Join(referenceDir, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s differs from the help (%v); run: go test ./cmd/caelum -run TestReference -update", path, err)
		}
	}
}

// documented returns the commands that have a page: all commands except help and completion, which cobra adds.
func documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			all = append(append(all, sub), documented(sub)...)
		}
	}
	return all
}

func referenceName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "_") + ".md"
}

// referencePage returns the page of a command, with the indented output of `--help`. The page links to those parts that
// the help texts of other commands repeat: the exit statuses, and the flags of the groups that contain the command.
func referencePage(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var help bytes.Buffer
	root := cmd.Root()
	root.SetOut(&help)
	root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "--help"))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	own := withoutPart(t, strings.Replace(help.String(), exitStatusHelp+"\n", "", 1), "\nGlobal Flags:\n")
	and := " and\n"
	if group := cmd.Parent(); group != root {
		and = fmt.Sprintf(",\nthe flags of [%s](%s), and\n", group.CommandPath(), referenceName(group))
	}
	var page strings.Builder
	path := cmd.CommandPath()
	fmt.Fprintf(&page, "# %s\n\n%s.\n\n`%s --help` prints this text%s", path, upperFirst(cmd.Short), path, and)
	page.WriteString("[the exit statuses and flags of all commands](README.md#exit-statuses-and-flags):\n\n")
	for line := range strings.Lines(own) {
		page.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
	}
	return page.String()
}

// withoutPart returns a help text without the part that begins with a heading and ends with a blank line.
func withoutPart(t *testing.T, help, heading string) string {
	t.Helper()
	before, part, found := strings.Cut(help, heading)
	if !found {
		t.Fatalf("the help has no part %q:\n%s", heading, help)
	}
	_, after, more := strings.Cut(part, "\n\n")
	if more {
		after = "\n" + after
	}
	return before + after
}

// referenceIndex returns the list of all commands.
func referenceIndex(root *cobra.Command) string {
	var page strings.Builder
	page.WriteString("# Commands\n\nEach page shows the help text of one of `caelum`'s commands. " +
		"[Install](../install.md) and\n[troubleshoot](../troubleshoot.md) describe the commands of `caelumd`.\n\n| " +
		"command | purpose |\n|---|---|\n")
	for _, cmd := range documented(root) {
		fmt.Fprintf(&page, "| [%s](%s) | %s |\n", cmd.CommandPath(), referenceName(cmd), cmd.Short)
	}
	page.WriteString("\n## Exit statuses and flags\n\nThe help of every command contains these lines:\n")
	for line := range strings.Lines(exitStatusHelp + "\n\nGlobal Flags:\n" + root.PersistentFlags().FlagUsages()) {
		page.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
	}
	return page.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
