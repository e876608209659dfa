package main

import (
	"math"
	"testing"
)

// TestLeastError checks the lower bound by hand: of the factors 1, 1.5 and 2, 1.5 has the smallest error.
func TestLeastError(t *testing.T) {
	if got := leastError([]float64{1, 1.5, 2}); math.Abs(got-0.75) > 1e-9 { // 0.5/1 + 0 + 0.5/2
		t.Errorf("the error is %v, want 0.75", got)
	}
	if got := leastError(nil); got != 0 {
		t.Errorf("the error without runs is %v", got)
	}
}

// TestBounds checks which runs no rule can forecast: a step after 10% of the run is hidden and the failure at the step
// is sudden, but a ramp is neither.
func TestBounds(t *testing.T) {
	step, ramp := &curve{slice: 150}, &curve{slice: 150}
	for k := range curveSteps {
		level := 100.0
		if k >= curveSteps/2 {
			level = 200
		}
		step.clean = append(step.clean, level)
		ramp.clean = append(ramp.clean, 100+100*float64(k)/curveSteps)
	}
	step.need, ramp.need = step.clean, ramp.clean
	if got := step.hidden(); got != 2 {
		t.Errorf("the step has the ratio %v, want 2", got)
	}
	if got := ramp.hidden(); got != 0 {
		t.Errorf("the ramp has the ratio %v, want 0", got)
	}
	if !step.constant(step.failsAt()) || ramp.constant(ramp.failsAt()) {
		t.Error("the failure of the step must be sudden, and that of the ramp must not")
	}
	if step.constant(step.failsAt() + 1) {
		t.Error("the memory at the step counts as constant")
	}
}

// TestComparedError checks that a run is forecast from the runs that begin in the same way.
func TestComparedError(t *testing.T) {
	var references []beginning
	for k := range 100 {
		high := float64(k % 2)
		references = append(references, beginning{features: []float64{high, -high}, ratio: 1 + high})
	}
	for _, high := range []float64{0, 1} {
		b := beginning{features: []float64{high + 0.1, -high}, ratio: 1 + high}
		if got := b.comparedError(references); got != 0 {
			t.Errorf("the error is %v, want 0", got)
		}
	}
	b := beginning{features: []float64{0, 0}, ratio: 2} // begins like runs with half of its peak
	if got := b.comparedError(references); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("the error is %v, want 0.5", got)
	}
}
