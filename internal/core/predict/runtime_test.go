package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestExpect compares Expect with the mean of random run times, and checks that the result changes only at steps.
func TestExpect(t *testing.T) {
	const median = 1000.0
	rng := rand.New(rand.NewPCG(1, 1))
	for _, sigma := range []float64{0.05, 0.4, 1} {
		high := median * math.Exp(quantile90*sigma)
		for _, ran := range []float64{0, 500, 1000, 1500} {
			total, until := Expect(median, high, ran)
			if total < until || until <= ran {
				t.Fatalf("sigma %v, after %v s: %v s, valid until %v s", sigma, ran, total, until)
			}
			if same, to := Expect(median, high, (ran+until)/2); same != total || to != until {
				t.Errorf("sigma %v, between %v and %v s: %v s, want %v s", sigma, ran, until, same, total)
			}
			step, sum, count := 0.0, 0.0, 0.0 // the step at or before ran
			for to := median * math.Exp(-sigma); to <= ran; to *= max(math.Exp(sigma/2), leastStep) {
				step = to
			}
			for range 200000 {
				if x := median * math.Exp(sigma*rng.NormFloat64()); x > step {
					sum, count = sum+x, count+1
				}
			}
			if mean := max(sum/count, until); count > 1000 && math.Abs(total/mean-1) > 0.02 {
				t.Errorf("sigma %v, after %v s: %.0f s, longer run times: mean %.0f s", sigma, ran, total, mean)
			}
		}
	}
}

// TestExpectLimits checks that Expect ends and returns a number that is larger than the run time so far for any input.
func TestExpectLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(1, 1e9).Draw(t, "seconds")
		high := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1, 1e9)).Draw(t, "high")
		ran := rapid.Float64Range(0, 1e10).Draw(t, "ran")
		total, until := Expect(seconds, high, ran)
		if !(until > ran && total >= until) || math.IsNaN(total) {
			t.Errorf("%v s, valid until %v s", total, until)
		}
	})
	if total, _ := Expect(0, 0, 100); total != 0 {
		t.Errorf("without an expected run time: %v s", total)
	}
}
