package sim

import (
	"errors"
	"slices"
	"testing"

	"caelum/internal/mig"
	"caelum/internal/trace"
)

// TestNoSpeedWithoutMeasurement checks that a job with measurements for some profiles runs only on these profiles. The
// simulation assumes no speed for other profiles, even if their slices are large enough.
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
		t.Error("a job started on a profile that it was not measured on")
	}
}
