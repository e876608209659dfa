package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"caelum/internal/node/gpu/gputest"
)

// reproducible matches commands that call neither an agent nor Slurm. On a machine with two A100-40GB GPUs, their
// output is always the same.
var reproducible = regexp.MustCompile(`^\$ caelum (profiles|simulate|slurm-config) `)

// transcripts finds the indented blocks on a page that begin with a reproducible command. typed holds the commands in
// these blocks, and printed their outputs.
func transcripts(page string) (typed, printed []string) {
	lines := strings.Split(page, "\n")
	for k := 0; k < len(lines); k++ {
		line, indented := strings.CutPrefix(lines[k], "    ")
		if !indented || !reproducible.MatchString(line) {
			continue
		}
		command, output := strings.TrimPrefix(line, "$ "), ""
		for ; strings.HasSuffix(command, "\\"); k++ {
			command += "\n" + lines[k+1]
		}
		for k++; k < len(lines) && (lines[k] == "" || strings.HasPrefix(lines[k], "    ")); k++ {
			output += strings.TrimPrefix(lines[k], "    ") + "\n"
		}
		typed, printed = append(typed, command), append(printed, strings.TrimRight(output, "\n")+"\n")
	}
	return typed, printed
}

// TestPagesShowWhatIsPrinted checks that the transcripts in the pages for administrators match the output of the
// commands.
func TestPagesShowWhatIsPrinted(t *testing.T) {
	dir := t.TempDir()
	var typed, printed []string
	for _, name := range []string{"install", "configure", "operate", "troubleshoot", "plan-capacity"} {
		page, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		commands, outputs := transcripts(string(page))
		typed, printed = append(typed, commands...), append(printed, outputs...)
	}
	if len(typed) < 3 {
		t.Fatalf("found %d transcripts, want at least 3", len(typed))
	}
	for k := range typed {
		name := filepath.Join(dir, fmt.Sprintf("%s-%d.txtar", strings.Fields(typed[k])[1], k+1))
		script := "exec sh typed\ncmp stdout printed\n-- typed --\n" + typed[k] + "\n-- printed --\n" + printed[k]
		if err := os.WriteFile(name, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := gputest.New(t, "A100-40GB", 2)
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		env.Setenv("GORACE", "atexit_sleep_ms=0")
		env.Setenv("NVML_EMULATOR_STATE", node.State)
		env.Setenv("LD_LIBRARY_PATH", node.Build())
		return nil
	}})
}

// TestGuideShowsReport checks that the report in the user guide matches the output that testdata/report.txtar expects.
func TestGuideShowsReport(t *testing.T) {
	guide, err := os.ReadFile("../../docs/user-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/report.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, expected, _ := strings.Cut(string(script), "\n-- too-large --\n")
	expected, _, _ = strings.Cut(expected, "-- chosen --\n")
	_, shown, found := strings.Cut(string(guide), "    $ caelum report 101\n")
	if !found || expected == "" {
		t.Fatal("the user guide or the script contains no report")
	}
	shown, _, _ = strings.Cut(shown, "\n\n|")
	shown = strings.TrimPrefix(strings.ReplaceAll(shown, "\n    ", "\n"), "    ") + "\n"
	if shown != expected {
		t.Errorf("the user guide shows\n%s\nbut the command prints\n%s", shown, expected)
	}
}

// TestOutputInGuide checks that the page for administrators shows the output of commands that the scripts in testdata
// test.
func TestOutputInGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	const saved = "# caelum usage --saved --since 2023-11-14T22:00:00 --until 2023-11-15 --gpus A100-40GB:1"
	for command, section := range map[string][2]string{
		"$ caelum status": {"status_nodes", "all"}, saved: {"usage_saved", "table"},
	} {
		script, err := os.ReadFile("testdata/" + section[0] + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		_, output, _ := strings.Cut(string(script), "\n-- "+section[1]+" --\n")
		output, _, _ = strings.Cut(output, "\n-- ")
		var indented strings.Builder
		for line := range strings.Lines(output) {
			indented.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
		}
		if output == "" || !strings.Contains(string(page), "    "+command+"\n"+indented.String()) {
			t.Errorf("docs/operate.md does not contain %s and the output\n%s", command, indented.String())
		}
	}
}
