package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the results to testdata/matrix and docs/script-matrix.md")

// pagePath is the page with the results of all releases.
const pagePath = "../../../docs/script-matrix.md"

// ran is the beginning of the text of a cell whose job ran. All other texts are Slurm's message for a refused job.
const ran = "ok"

// results maps the name of each cell to its text on one Slurm release.
type results map[string]string

// resultsFile returns the path of a release's results.
func resultsFile(release string) string { return filepath.Join("testdata", "matrix", release+".txt") }

// String returns the content of a release's file: one line for each cell whose text is not ran.
func (r results) String() string {
	var b strings.Builder
	for _, c := range cells() {
		if text := r[c.name()]; text != ran {
			fmt.Fprintf(&b, "%s: %s\n", c.name(), text)
		}
	}
	return b.String()
}

// parseResults parses the content of a release's file.
func parseResults(text string) (results, error) {
	r := results{}
	for _, c := range cells() {
		r[c.name()] = ran
	}
	for line := range strings.Lines(text) {
		name, text, found := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if r[name] == "" || !found || text == "" {
			return nil, fmt.Errorf("the line %q does not name a cell", line)
		}
		r[name] = text
	}
	return r, nil
}

// readResults reads the results of all releases. The result also lists the releases, oldest first.
func readResults() (releases []string, all map[string]results, err error) {
	paths, err := filepath.Glob(resultsFile("*"))
	if err != nil {
		return nil, nil, err
	}
	all = map[string]results{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		release := strings.TrimSuffix(filepath.Base(path), ".txt")
		if all[release], err = parseResults(string(text)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		releases = append(releases, release)
	}
	slices.Sort(releases)
	return releases, all, nil
}

const pageHead = `# The script matrix

This page shows how unchanged scripts run with Caelum on Slurm RELEASES. Each row
of a table is a way to request a GPU, and each column is a way to start the program that uses it.
The test submits a job for every combination to stock Slurm, which is Slurm without Caelum, and to
Slurm with Caelum. These commands compare a release with this page and, with -rewrite, write its
results:

    go test -tags e2e ./contrib/devcluster/e2e -run TestScriptMatrix
    contrib/devcluster/release 24.11 go test -tags e2e ./contrib/devcluster/e2e -run TestScriptMatrix

| cell | meaning |
|---|---|
| ok | The job ran. Each task saw exactly one MIG device, the device had the default profile, and no ` +
	`other task held the device. SLURM_GPUS_ON_NODE was 1 on stock Slurm and with Caelum. |
| ok 2 | As ok, but SLURM_GPUS_ON_NODE was 2 on stock Slurm and with Caelum. |
| (1), (2), ... | At least one release refuses the job, with the same [message](#refused-requests) on stock ` +
	`Slurm and with Caelum. |

The columns have the following meanings:

- *no srun*: the script starts the program without srun. A direct srun starts the program instead of
  the script. salloc runs without a command and with LaunchParameters=use_interactive_step. In all
  other columns, salloc runs the script as its command on the login node.
- *srun*, *srun --gres=gpu:1*, *srun --gpus=1*: the script starts the program with this command. A
  direct srun starts the script, and the srun command in the script also has --overlap.
- *two steps*: the job has two tasks and two GPUs. The script starts two steps at the same time with
  ` + "`srun --exact -n1 --gres=gpu:1`, or `--gpus=1`" + ` if the job requests GPUs for the whole job. With a
  direct srun, --gpu-bind=single:1 binds the job's two tasks instead.
- *--cpus-per-gpu*, *--mem-per-gpu*: the job has this option, and the script starts the program with
  srun without options.
`

// matrixPage returns the page for the results of all releases.
func matrixPage(releases []string, all map[string]results) string {
	var b strings.Builder
	b.WriteString(strings.Replace(pageHead, "RELEASES", enumerate(releases), 1))
	var notes []string
	for _, c := range cells() {
		if c.spelling.name == spellings[0].name && c.form.name == forms[0].name {
			fmt.Fprintf(&b, "\n## %s\n\n| |", c.mode)
			for _, f := range forms {
				fmt.Fprintf(&b, " %s |", f.name)
			}
			fmt.Fprintf(&b, "\n|---%s|\n", strings.Repeat("|---", len(forms)))
		}
		if c.form.name == forms[0].name {
			fmt.Fprintf(&b, "| `%s` |", c.spelling.name)
		}
		text, note := describe(c, releases, all)
		if note != "" {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
			text = strings.TrimSpace(fmt.Sprintf("%s (%d)", text, slices.Index(notes, note)+1))
		}
		fmt.Fprintf(&b, " %s |", text)
		if c.form.name == forms[len(forms)-1].name {
			b.WriteString("\n")
		}
	}
	b.WriteString("\n## Refused requests\n\n")
	for i, note := range notes {
		fmt.Fprintf(&b, "%d. %s", i+1, note)
	}
	return b.String()
}

// describe returns the text of a cell on the releases that run the job, and the list of the other releases with Slurm's
// messages. The text is empty if no release runs the job, and the list is empty if all releases run it.
func describe(c cell, releases []string, all map[string]results) (text, note string) {
	var texts []string
	on := map[string][]string{}
	for _, release := range releases {
		found := all[release][c.name()]
		if on[found] == nil {
			texts = append(texts, found)
		}
		on[found] = append(on[found], release)
	}
	refusals := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.HasPrefix(text, ran) })
	texts = slices.DeleteFunc(texts, func(text string) bool { return !strings.HasPrefix(text, ran) })
	for i := range texts {
		if len(texts) > 1 {
			texts[i] += " on " + enumerate(on[texts[i]])
		}
	}
	for i, message := range refusals {
		indent := strings.Repeat(" ", 3*min(i, 1))
		note += fmt.Sprintf("%sOn %s:\n\n       %s\n\n", indent, enumerate(on[message]),
			strings.ReplaceAll(message, " / ", "\n       "))
	}
	return strings.Join(texts, ", "), note
}

// enumerate returns a list as in a sentence.
func enumerate(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

// comparePage compares docs/script-matrix.md with the results of all releases. If the -rewrite flag is set, it writes
// the page instead.
func comparePage(t *testing.T) {
	t.Helper()
	releases, all, err := readResults()
	if err != nil || len(releases) == 0 {
		t.Fatalf("%d releases, %v", len(releases), err)
	}
	text := strings.TrimRight(matrixPage(releases, all), "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(pagePath, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	if page, err := os.ReadFile(pagePath); err != nil || string(page) != text {
		t.Errorf("%s differs from testdata/matrix (%v); run: go test ./contrib/devcluster/e2e -run TestMatrixPage "+
			"-rewrite", pagePath, err)
	}
}

// TestMatrixPage compares the page with the results of all releases.
func TestMatrixPage(t *testing.T) { comparePage(t) }

// TestMatrixResults checks that results are read as they were written, and that the page shows a difference between
// releases.
func TestMatrixResults(t *testing.T) {
	const refused = "srun_--gpus-per-task_1_no_srun: srun: error: one / srun: error: two\n"
	older, err := parseResults(refused)
	if err != nil || older.String() != refused {
		t.Fatalf("%q, %v", older.String(), err)
	}
	newer, err := parseResults("")
	if err != nil {
		t.Fatal(err)
	}
	c := cells()[slices.IndexFunc(cells(), func(c cell) bool { return c.name() == "srun_--gpus-per-task_1_no_srun" })]
	all := map[string]results{"22.05": older, "24.11": newer}
	text, note := describe(c, []string{"22.05", "24.11"}, all)
	if text != ran || note != "On 22.05:\n\n       srun: error: one\n       srun: error: two\n\n" {
		t.Errorf("%q, %q", text, note)
	}
	older[c.name()] = ran + " 2"
	if text, note = describe(c, []string{"22.05", "24.11"}, all); text != "ok 2 on 22.05, ok on 24.11" || note != "" {
		t.Errorf("%q, %q", text, note)
	}
	for _, text := range []string{"srun_nothing: ok\n", "text\n"} {
		if _, err := parseResults(text); err == nil {
			t.Errorf("%q is valid", text)
		}
	}
}
