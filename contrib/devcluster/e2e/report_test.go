//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// report is docs/script-matrix.md.
type report struct {
	mu      sync.Mutex
	cells   map[string]string
	refused []string // Slurm's words; their index is the footnote
	failed  bool
}

const reportFile = "../../../docs/script-matrix.md"

const reportHead = `# The script matrix

What becomes of unchanged scripts: every way to ask for a GPU, with everything a script may do with it, submitted to Slurm with
Caelum and to the same Slurm without. Written by

    go test -tags e2e ./contrib/devcluster/e2e -run TestScriptMatrix -rewrite

and checked by every run of it without -rewrite.

**ok**: it ran, each task saw exactly one MIG device of the default profile, which no other task held, and
SLURM_GPUS_ON_NODE was what stock Slurm says (the number behind it, where it is not 1). A number in brackets: refused by stock Slurm too, in
the same words, below.

- *two steps*: a job of two tasks and two GPUs (--gres=gpu:2, --gpus=2, ...), whose script starts two steps at once,
  ` + "`srun --exact -n1 --gres=gpu:1`" + ` or, under a count per job, ` + "`srun --exact -n1 --gpus=1`" + `; both hold their devices at the
  same time. With a direct srun: its two tasks, bound with --gpu-bind=single:1.
- *srun ...* under a direct srun: the srun runs a script, whose own sruns have --overlap.
- *no srun* under salloc: salloc without a command, with LaunchParameters=use_interactive_step. The other columns: salloc with the script
  as its command, which runs on the login node.
- *--cpus-per-gpu*, *--mem-per-gpu*: of the job, with a plain srun in it.
`

// note enters a cell that was measured.
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
		text = "ok (stock Slurm refuses it)"
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
	b.WriteString("\n## Slurm's words\n\n")
	for i, words := range r.refused {
		fmt.Fprintf(&b, "%d. `%s`\n", i+1, words)
	}
	return b.String()
}

// finish writes the report, or compares it with the one that stands. A run of some of the cells does neither.
func (r *report) finish(t *testing.T) {
	if r.failed || len(r.cells) < len(modes)*len(spellings)*len(forms) {
		return
	}
	if *rewrite {
		if err := os.WriteFile(reportFile, []byte(r.String()), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	stands, err := os.ReadFile(reportFile)
	if err != nil || string(stands) != r.String() {
		t.Errorf(
			"%s is not what was measured (%v); look at what -rewrite changes:\n%s",
			filepath.Base(reportFile),
			err,
			r,
		)
	}
}
