package sim

import (
	"errors"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// TestNoSpeedWithoutMeasurement checks that a job whose speed was measured only on some profiles runs only on them. The
// simulation must assume no speed for other profiles, even if their slices are large enough.
func TestNoSpeedWithoutMeasurement(t *testing.T) {
	cluster := gpus(t, "A100-40GB", 1)
	speed := map[string]float64{"1g.5gb": 0.25, "3g.20gb": 0.5, "7g.40gb": 1}
	jobs := []trace.Job{
		{ID: "a", Duration: 100, Speed: speed},
		{ID: "b", Duration: 100, Speed: speed},
	}
	for _, c := range []struct {
		layout string
		want   []float64 // turnarounds of both jobs
	}{
		{"|1g.10gb|1g.5gb|.|3g.20gb|", []float64{400, 200}}, // the 1g.10gb stays empty
		{"|1g.10gb|1g.10gb|3g.20gb|", []float64{200, 400}},  // the second job waits
	} {
		layout, err := cluster[0].Parse(c.layout)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(Config{GPUs: cluster, Static: []mig.Layout{layout}}, slices.Values(jobs))
		if err != nil {
			t.Fatal(err)
		}
		if want := c.want[0] + c.want[1]; r.Turnaround != want {
			t.Errorf("%s: turnarounds of %v s in all, want %v", c.layout, r.Turnaround, want)
		}
	}
	none, err := cluster[0].Parse("|1g.10gb|1g.10gb|2g.10gb|1g.10gb|")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(Config{GPUs: cluster, Static: []mig.Layout{none}}, slices.Values(jobs))
	if !errors.Is(err, ErrNever) {
		t.Errorf("only slices without a measurement: %v", err)
	}
	named := trace.Job{ID: "named", Duration: 100, Profile: "1g.10gb", Speed: speed}
	_, err = Run(Config{GPUs: cluster, Policy: policy(t, "best-fit")}, slices.Values([]trace.Job{named}))
	if err == nil {
		t.Error("a job started on a profile without a measurement")
	}
}

// ranTest is an observer that calls a function for each slice.
type ranTest func(Span)

func (f ranTest) Ran(s Span)                             { f(s) }
func (ranTest) Passed(_, _ float64, _, _ int, _ float64) {}
func (ranTest) Waited(string, float64)                   {}

// TestSpeedsAfterEarlierRuns checks that, before the planner looks up a job's speeds, the Observer receives all runs
// that started before the job was submitted, so that it can learn the speeds from them.
func TestSpeedsAfterEarlierRuns(t *testing.T) {
	speed := map[string]float64{"7g.40gb": 1}
	jobs := []trace.Job{
		{ID: "a", Duration: 10, Speed: speed},
		{ID: "b", Duration: 10, Speed: speed}, // starts at 10
		{ID: "c", Submit: 25, Duration: 10, Speed: speed},
	}
	var ran, before []string
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "lifetime"), Sizing: Adaptive}
	c.Observer = ranTest(func(s Span) { ran = append(ran, s.Job) })
	c.Speeds = func(j trace.Job, profile string) float64 {
		if j.ID == "c" {
			before = slices.Clone(ran)
		}
		return j.Speed[profile]
	}
	if _, err := Run(c, slices.Values(jobs)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, []string{"a", "b"}) {
		t.Errorf("observed before the submission of c: %v", before)
	}
}

// TestSpanOfLargerSlice checks that the Observer receives the profile of the slice, not the profile that the job
// requests.
func TestSpanOfLargerSlice(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 10, Speed: map[string]float64{"1g.5gb": 0.2, "7g.40gb": 1}}}
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "lifetime"), Sizing: Adaptive}
	c.Observer = ranTest(func(s Span) {
		if s.Profile != "7g.40gb" || s.To-s.From != 10 {
			t.Errorf("the job runs alone on a GPU: %+v", s)
		}
	})
	if _, err := Run(c, slices.Values(jobs)); err != nil {
		t.Fatal(err)
	}
}
