package main

import (
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// TestContention checks the speeds of three jobs on a GPU.
func TestContention(t *testing.T) {
	three := make([]trace.Job, 3)
	for name, want := range map[string]float64{"0": 1, "0.25": 1, "0.5": 1 / 1.5, "1": 1. / 3, "x2": 0.5} {
		speed, err := contention(name, 101)
		if err != nil {
			t.Fatal(err)
		}
		if got := speed(three); got != want {
			t.Errorf("%s: three jobs run at %v, want %v", name, got, want)
		}
		if got := speed(three[:1]); got != 1 {
			t.Errorf("%s: a single job runs at %v", name, got)
		}
	}
	if _, err := contention("2", 101); err == nil {
		t.Error("a job keeps a GPU busy for twice its time")
	}
}

// TestPatterns checks that the search tries every combination of layouts: four GPUs with four layouts have 35.
func TestPatterns(t *testing.T) {
	b, err := mig.ModelByName("L40S-48GB/4")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for p := range patterns(kinds(b), 4) {
		seen[p.Names(b)] = true
	}
	if len(seen) != 35 {
		t.Errorf("%d patterns", len(seen))
	}
}

// TestRow runs the command with few jobs, with and without contention.
func TestRow(t *testing.T) {
	var out strings.Builder
	args := []string{"-gpus", "2", "-jobs", "60", "-seeds", "1-2", "-of", "gpus", "-contention", "none,1"}
	if err := start(args, &out); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "0.85 of gpus"); rows != 2 {
		t.Errorf("%d rows:\n%s", rows, out.String())
	}
}

// TestAlike checks that fractions on demand are no better than fixed fractions if all jobs need the same fraction.
func TestAlike(t *testing.T) {
	b, err := mig.ModelByName("L40S-48GB/4")
	if err != nil {
		t.Fatal(err)
	}
	all := source{jobs: 300}.draw(1, 0.9*8, func(trace.Job) float64 { return 1 })
	for k := range all {
		all[k].Profile = "1f.11gb"
	}
	w, err := compare(sim.Config{GPUs: []*mig.Model{b, b}, Discipline: sim.EASY}, all)
	if err != nil {
		t.Fatal(err)
	}
	if w.fixed.wait == 0 || w.fixed.wait != w.fractions.wait || w.fixed.wait != w.shards.wait {
		t.Errorf("mean waits: fixed %v s, first-fit %v s, fractions %v s", w.fixed.wait, w.shards.wait,
			w.fractions.wait)
	}
}
