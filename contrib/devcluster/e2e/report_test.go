//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"caelum/internal/slurm"
)

// report is the content of docs/script-matrix.md or of the page for another release.
type report struct {
	mu      sync.Mutex
	cells   map[string]string
	refused []string // Slurm's messages, in the order of their footnotes
	failed  bool
}

// releaseOfPage is the Slurm release that docs/script-matrix.md shows. Every other release has a page of its own.
const releaseOfPage = "22.05"

// release returns the installed Slurm release, for example 24.11.
func release(t *testing.T) string {
	out, err := exec.Command("slurmctld", "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	release, err := slurm.ParseRelease(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return release.String()
}

// page returns the path and the contents of the release's page.
func (r *report) page(t *testing.T) (path, text string) {
	const command = "    go test -tags e2e"
	path, text = "../../../docs/script-matrix.md", r.String()
	if on := release(t); on != releaseOfPage {
		path = strings.Replace(path, ".md", "-"+on+".md", 1)
		text = strings.Replace(text, "# The script matrix\n", "# The script matrix on Slurm "+on+"\n", 1)
		text = strings.Replace(text, command, "    contrib/devcluster/release "+on+command[3:], 1)
	}
	return path, text
}

const reportHead = `# The script matrix

This page shows how unchanged scripts run with Caelum. Each row of a table is a way to request a
GPU, and each column is a way to start the program that uses the GPU. The test submits a job for
every combination to stock Slurm, which is Slurm without Caelum, and to Slurm with Caelum. The
following command writes the page:

    go test -tags e2e ./contrib/devcluster/e2e -run TestScriptMatrix -rewrite

Without ` + "`-rewrite`" + `, the test compares its results with this page.

| cell | meaning |
|---|---|
| ok | The job ran. Each task saw exactly one MIG device, the device had the default profile, and no other task held the device. SLURM_GPUS_ON_NODE was 1 on stock Slurm and with Caelum. |
| ok 2 | The job ran as in a cell with "ok", but SLURM_GPUS_ON_NODE was 2 on stock Slurm and with Caelum. |
| (1), (2), ... | Stock Slurm and Slurm with Caelum both refused the job with an identical message. The number refers to the list of [Slurm's messages](#slurms-messages). |

The columns have the following meanings:

- *no srun*: the script starts the program without srun. A direct srun starts the program instead of
  the script. salloc runs without a command and with LaunchParameters=use_interactive_step. In all
  other columns, salloc runs the script as its command on the login node.
- *srun*, *srun --gres=gpu:1*, *srun --gpus=1*: the script starts the program with the srun command
  in the title of the column. A direct srun starts the script, and the srun command in the script
  also has --overlap.
- *two steps*: the job has two tasks and two GPUs (--gres=gpu:2, --gpus=2, ...). The script starts
  two steps at the same time with ` + "`srun --exact -n1 --gres=gpu:1`" + `. If the job requests GPUs for the
  whole job, the steps use ` + "`srun --exact -n1 --gpus=1`" + ` instead. Both steps hold their devices at the
  same time. With a direct srun, --gpu-bind=single:1 binds the job's two tasks instead.
- *--cpus-per-gpu*, *--mem-per-gpu*: the job has the option in the title of the column, and the
  script starts the program with srun without options.
`

// note records a cell's result.
func (r *report) note(c cell, want, got outcome, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := "ok"
	switch {
	case failed:
		text = "FAILED"
		r.failed = true
	case got.refusal != "":
		if !slices.Contains(r.refused, got.refusal) {
			r.refused = append(r.refused, got.refusal)
			slices.Sort(r.refused)
		}
		text = got.refusal
	case want.refusal != "":
		text = "ok (stock Slurm refuses the job)"
	case !slices.Equal(slices.Compact(slices.Clone(got.gpus)), []string{"1"}):
		text = "ok " + strings.Join(slices.Compact(slices.Clone(got.gpus)), ",")
	}
	r.cells[c.name()] = text
}

func (r *report) String() string {
	var b strings.Builder
	b.WriteString(reportHead)
	for _, mode := range modes {
		fmt.Fprintf(&b, "\n## %s\n\n| |", mode.name)
		for _, f := range forms {
			fmt.Fprintf(&b, " %s |", f.name)
		}
		fmt.Fprintf(&b, "\n|---%s|\n", strings.Repeat("|---", len(forms)))
		for _, sp := range spellings {
			fmt.Fprintf(&b, "| `%s` |", sp.name)
			for _, f := range forms {
				text := r.cells[cell{mode.name, sp, f}.name()]
				if i := slices.Index(r.refused, text); i >= 0 {
					text = fmt.Sprintf("(%d)", i+1)
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n## Slurm's messages\n\n")
	for i, words := range r.refused {
		fmt.Fprintf(&b, "%d. `%s`\n", i+1, words)
	}
	return b.String()
}

// finish writes the report if the -rewrite flag is set, and otherwise compares it with the existing file. It does
// nothing unless all cells have been run.
func (r *report) finish(t *testing.T) {
	if r.failed || len(r.cells) < len(modes)*len(spellings)*len(forms) {
		return
	}
	file, text := r.page(t)
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	existing, err := os.ReadFile(file)
	if err != nil || string(existing) != text {
		t.Errorf(
			"%s does not equal the test results (%v); review the changes that -rewrite makes; results:\n%s",
			filepath.Base(file),
			err,
			text,
		)
	}
}
