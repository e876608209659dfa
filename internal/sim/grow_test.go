package sim

import (
	"math"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// scripted is a Growth with a fixed list of runs for each job.
type scripted struct {
	t    *testing.T
	runs map[string][]scriptedRun
}

// scriptedRun is a run on a profile, with its run time in seconds and how it ends.
type scriptedRun struct {
	profile string
	seconds float64
	next    Next
}

func (g *scripted) Submitted(j trace.Job) string { return g.runs[j.ID][0].profile }

func (g *scripted) Started(j trace.Job, profile string) float64 {
	if want := g.runs[j.ID][0].profile; profile != want {
		g.t.Errorf("%s started on %s, want %s", j.ID, profile, want)
	}
	return g.runs[j.ID][0].seconds
}

func (g *scripted) Ended(j trace.Job, _ float64) Next {
	next := g.runs[j.ID][0].next
	g.runs[j.ID] = g.runs[j.ID][1:]
	return next
}

// TestGrowth checks a case by hand: job a is requeued with a larger profile and keeps its place in the queue, and job
// b's user resubmits it, behind job c.
func TestGrowth(t *testing.T) {
	var seen spans
	g := &scripted{t, map[string][]scriptedRun{
		"a": {{"3g.20gb", 100, Next{Requeue: "7g.40gb"}}, {"7g.40gb", 200, Next{}}},
		"b": {{"7g.40gb", 150, Next{Resubmit: 30}}, {"7g.40gb", 10, Next{}}},
		"c": {{"7g.40gb", 50, Next{}}},
	}}
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 1, Profile: "1g.5gb"},
		{ID: "b", Submit: 10, Duration: 1, Profile: "1g.5gb"},
		{ID: "c", Submit: 20, Duration: 1, Profile: "1g.5gb"},
	}
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "best-fit"), Growth: g, Observer: &seen}
	r, err := Run(c, slices.Values(jobs))
	if err != nil {
		t.Fatal(err)
	}
	want := []Span{ // a could restart at 221 s, and b is back in the queue at 280 s
		{Job: "a", Profile: "3g.20gb", From: 0, To: 100}, {Job: "b", Profile: "7g.40gb", From: 100, To: 250},
		{Job: "a", Profile: "7g.40gb", From: 250, To: 450}, {Job: "c", Profile: "7g.40gb", From: 450, To: 500},
		{Job: "b", Profile: "7g.40gb", From: 500, To: 510},
	}
	for k := range seen.all {
		seen.all[k].Start, seen.all[k].Size = 0, 0
	}
	if !slices.Equal(seen.all, want) {
		t.Errorf("runs %+v, want %+v", seen.all, want)
	}
	if !slices.Equal(seen.waited, []float64{150, 430, 340}) {
		t.Errorf("waits %v", seen.waited)
	}
	if r.Submitted != 3 || r.Started != 3 || r.Requeued != 2 || r.Turnaround != 450+500+480 ||
		math.Abs(r.Lost-1600./3680) > 1e-9 {
		t.Errorf("%+v", r)
	}
}

// TestGrowthDelay checks that a requeued job can restart after the given delay.
func TestGrowthDelay(t *testing.T) {
	var seen spans
	g := &scripted{t, map[string][]scriptedRun{
		"a": {{"1g.5gb", 100, Next{Requeue: "7g.40gb", Delay: 6}}, {"7g.40gb", 200, Next{}}},
	}}
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "best-fit"), Growth: g, Observer: &seen}
	if _, err := Run(c, slices.Values([]trace.Job{{ID: "a", Duration: 1, Profile: "1g.5gb"}})); err != nil {
		t.Fatal(err)
	}
	if len(seen.all) != 2 || seen.all[1].From != 106 {
		t.Errorf("runs %+v", seen.all)
	}
}

// TestGrowthRequiresAPolicy checks the configurations that Growth does not support.
func TestGrowthRequiresAPolicy(t *testing.T) {
	one := gpus(t, "A100-40GB", 1)
	for name, c := range map[string]Config{
		"no policy":  {GPUs: one},
		"no queue":   {GPUs: one, Policy: policy(t, "best-fit"), Discipline: Loss},
		"two models": {GPUs: append(gpus(t, "A30-24GB", 1), one...), Policy: policy(t, "best-fit")},
		"memory":     {GPUs: one, Policy: policy(t, "best-fit"), Memory: exact{}},
		"stay":       {GPUs: one, Policy: policy(t, "best-fit"), Stay: true},
	} {
		c.Growth = &scripted{t: t}
		if _, err := Run(c, slices.Values([]trace.Job(nil))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// exact is a Memory that is always sufficient for a job's own profile.
type exact struct{}

func (exact) Profile(_ trace.Job, _ *mig.Model, own string, _ float64) string { return own }
func (exact) Lasts(trace.Job, float64) float64                                { return 1 }
