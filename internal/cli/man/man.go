// Package man writes manual pages. It converts the help text of each command, and the table of keys in
// docs/configure.md, which becomes caelum.yaml(5). Only tests import the package. The build runs these tests to write
// the pages, so this code is not part of the installed programs. The package never runs a command.
//
// Files:
//
//	man.go  Commands and Test, which write the pages of a program; Configuration, which returns caelum.yaml(5)
package man

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"caelum/internal/version"
)

// Commands writes the manual pages for root and all its commands to dir. section is the manual section, such as "1".
// Commands modifies the commands' help texts. The date in the pages is taken from the SOURCE_DATE_EPOCH environment
// variable or, if this variable is not set, is the current date.
func Commands(root *cobra.Command, dir, section string) error {
	prepare(root)
	header := doc.GenManHeader{Section: section, Source: "Caelum " + version.Version, Manual: "Caelum"}
	return doc.GenManTree(root, &header, dir)
}

// prepare converts the help texts of cmd and of all its subcommands to Markdown, because cobra's doc package expects
// Markdown. It also removes the help and completion commands, which cobra adds and which need no page.
func prepare(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.Root().CompletionOptions.DisableDefaultCmd = true
	cmd.Root().SetHelpCommand(&cobra.Command{Hidden: true})
	cmd.Long = markdown(cmd.Long)
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

// heading matches a section heading in a help text: capital letters, optionally followed by a comma and an explanation.
var heading = regexp.MustCompile(`^([A-Z][A-Z ]+)(, .*)?$`)

// markdown converts a help text to Markdown. Lines that begin with two spaces keep their columns, lines that match
// heading become headings, and all others become paragraphs.
func markdown(help string) string {
	var b strings.Builder
	columns := false // true if the previous line keeps its columns
	for line := range strings.SplitSeq(help, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != columns && line != "" {
			b.WriteString("\n")
			columns = indented
		}
		switch m := heading.FindStringSubmatch(line); {
		case indented:
			b.WriteString("    " + line + "\n")
		case m != nil:
			fmt.Fprintf(&b, "# %s\n", line)
		default:
			b.WriteString(escape(line) + "\n")
		}
	}
	return b.String()
}

// escape puts a backslash before each character in a line that Markdown would interpret.
func escape(line string) string {
	return strings.NewReplacer("_", `\_`, "*", `\*`, "<", `\<`, "|", `\|`).Replace(line)
}

// more matches the link to another page at the end of a key's meaning. Configuration removes it, because a manual page
// cannot show the target.
var more = regexp.MustCompile(`\[More\]\([^)]*\)`)

// Configuration returns the caelum.yaml(5) manual page. page is the content of docs/configure.md, which contains the
// table of keys.
func Configuration(page string) ([]byte, error) {
	_, table, found := strings.Cut(page, "\n| key | default | values | restart | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		return nil, fmt.Errorf("couldn't find the table of keys in docs/configure.md")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%% \"CAELUM.YAML\" \"5\" \"\" \"Caelum %s\" \"Caelum\"\n", version.Version)
	b.WriteString("# NAME\ncaelum.yaml - the configuration file of Caelum's agent and watcher\n\n" +
		"# SYNOPSIS\n/etc/caelum/caelum.yaml\n\n" +
		"# DESCRIPTION\ncaelumd and caelum-watch read this YAML file when they start. They do not start if the file " +
		"contains an unknown key or an invalid value, or if a user other than root can change the file. A key that " +
		"is not in the file has its default value. Without the file, all keys have their defaults.\n\n# KEYS\n")
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		fmt.Fprintf(&b, "**%s** (default: %s; values: %s; restart: %s)\n: %s\n\n", strings.Trim(cells[0], "`"),
			cells[1], cells[2], cells[3], strings.TrimSpace(more.ReplaceAllString(cells[4], "")))
	}
	b.WriteString("# FILES\n/usr/share/caelum/caelum.yaml\n: An example that contains every key with its default.\n" +
		"\n# SEE ALSO\n**caelumd(8)**, **caelum-watch(8)**, **caelum-doctor(1)**\n")
	return md2man.Render([]byte(b.String())), nil
}

// Page returns the file name of a command's manual page.
func Page(cmd *cobra.Command, section string) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "." + section
}

var dir = flag.String("man", "", "write the manual pages into this directory")

// Test writes the manual pages of a program into the directory given by the -man flag of its tests, and returns this
// directory. It fails the test if a command that is not hidden has no page. command returns the program's command.
func Test(t *testing.T, command func() *cobra.Command, section string) string {
	to := cmp.Or(*dir, t.TempDir())
	if err := Commands(command(), to, section); err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		if _, err := os.Stat(filepath.Join(to, Page(cmd, section))); err != nil {
			t.Errorf("%s has no page: %v", cmd.CommandPath(), err)
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				check(sub)
			}
		}
	}
	check(command())
	return to
}
