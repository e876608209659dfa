package sim

import (
	"errors"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// TestSeveralSlices checks for every implementation of room that a job with several slices starts when all of its
// slices are free.
func TestSeveralSlices(t *testing.T) {
	two := gpus(t, "A100-40GB", 2)
	half, err := two[0].Parse("|4g.20gb|3g.20gb|")
	if err != nil {
		t.Fatal(err)
	}
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, Profile: "4g.20gb"},
		{ID: "b", Submit: 0, Duration: 30, Profile: "4g.20gb"},
		{ID: "pair", Submit: 10, Duration: 50, Profile: "4g.20gb", Slices: 2}, // starts when both jobs have ended
		// The long job is submitted after the pair. In the half that b uses, it would delay the pair.
		{ID: "long", Submit: 20, Duration: 90, Profile: "4g.20gb"},
		{ID: "short", Submit: 25, Duration: 20, Profile: "4g.20gb"},  // ends before the pair starts
		{ID: "other", Submit: 26, Duration: 500, Profile: "3g.20gb"}, // uses a half that no other job needs
	}
	for _, c := range []struct {
		name string
		c    Config
		want []float64 // waits in the order of the starts
	}{
		{"best-fit, FIFO", Config{Policy: policy(t, "best-fit")}, []float64{0, 0, 90, 130, 125, 124}},
		{"fixed, FIFO", Config{Static: []mig.Layout{half, half}}, []float64{0, 0, 90, 130, 125, 124}},
		{"best-fit, EASY", Config{Policy: policy(t, "best-fit"), Discipline: EASY}, []float64{0, 0, 0, 5, 90, 130}},
		{"fixed, EASY", Config{Static: []mig.Layout{half, half}, Discipline: EASY}, []float64{0, 0, 0, 5, 90, 130}},
		{"best-fit, no queue", Config{Policy: policy(t, "best-fit"), Discipline: Loss}, []float64{0, 0, 0}},
	} {
		c.c.GPUs = two
		got, err := waits(c.c, slices.Values(jobs))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: waits %v, want %v", c.name, got, c.want)
		}
	}
	three := jobs[2]
	three.Slices = 3
	_, err = Run(Config{GPUs: two, Policy: policy(t, "best-fit")}, slices.Values([]trace.Job{three}))
	if !errors.Is(err, ErrNever) {
		t.Errorf("three on two GPUs: %v", err)
	}
}
