//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"caelum/internal/slurm"
)

// report collects the results of TestScriptMatrix on the installed Slurm release.
type report struct {
	mu     sync.Mutex
	cells  results
	failed bool
}

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

// note records a cell's result.
func (r *report) note(c cell, want, got outcome, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ran
	switch {
	case failed:
		r.failed = true
	case got.refusal != "":
		text = got.refusal
	case want.refusal != "":
		text = ran + " (stock Slurm refuses the job)"
	case !slices.Equal(slices.Compact(slices.Clone(got.gpus)), []string{"1"}):
		text = ran + " " + strings.Join(slices.Compact(slices.Clone(got.gpus)), ",")
	}
	r.cells[c.name()] = text
}

// finish compares the results with the release's file in testdata/matrix. If the -rewrite flag is set, it writes the
// file and the page instead. It does nothing unless all cells have been run.
func (r *report) finish(t *testing.T) {
	if r.failed || len(r.cells) < len(cells()) {
		return
	}
	file, text := resultsFile(release(t)), r.cells.String()
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
		comparePage(t)
		return
	}
	existing, err := os.ReadFile(file)
	if err != nil || string(existing) != text {
		t.Errorf("%s does not equal the test results (%v); review the changes that -rewrite makes; results:\n%s",
			file, err, text)
	}
}
