package man

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestMarkdown(t *testing.T) {
	help := "place puts a_b into |cell|.\nIt prints:\n  reuse    an *idle* instance\n  carve    free\nThen it ends.\n" +
		"\nENDS, the run times\n  exact    x\n\nNVML is no heading.\n"
	want := "place puts a\\_b into \\|cell\\|.\nIt prints:\n\n      reuse    an *idle* instance\n      carve    free" +
		"\n\nThen it ends.\n\n# ENDS, the run times\n\n      exact    x\n\n\nNVML is no heading.\n\n"
	if got := markdown(help); got != want {
		t.Errorf("%q, want\n%q", got, want)
	}
}

func TestCommands(t *testing.T) {
	root := &cobra.Command{Use: "x", Short: "Does x", Run: func(*cobra.Command, []string) {}}
	sub := &cobra.Command{Use: "y", Short: "Does y", Long: "y does y.", Run: root.Run}
	root.AddCommand(sub)
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if err := Commands(root, dir, "8"); err != nil {
		t.Fatal(err)
	}
	for cmd, want := range map[*cobra.Command]string{root: "fBx-y(8)", sub: "y does y."} {
		if text := read(t, dir, Page(cmd, "8")); !strings.Contains(text, want) || !strings.Contains(text, "Nov 2023") {
			t.Errorf("the page does not contain %q, or does not contain the date: %s", want, text)
		}
	}
}

func TestConfiguration(t *testing.T) {
	page, err := Configuration("text\n\n| key | default | values | restart | meaning |\n|---|---|---|---|---|\n" +
		"| `run_dir` | /run/caelum | a path | caelumd | The directory of the socket. [More](install.md#x) |\n\n" +
		"| key | default | other |\n")
	text := string(page)
	if err != nil || !strings.Contains(text, "run_dir") || !strings.Contains(text, "The directory of the socket.\n") ||
		!strings.Contains(text, "restart: caelumd") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := Configuration("no table"); err == nil {
		t.Error("Configuration returned no error for a text without a table")
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
