package sim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWaits checks that Waits returns the added waits with three significant digits.
func TestWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Float64Range(0, 1e7), 1, 200).Draw(t, "waits")
		var w Waits
		sum := 0.0
		for _, x := range all {
			w.Add(x)
			sum += x
		}
		slices.Sort(all)
		if w.Count != len(all) || w.Longest != all[len(all)-1] || math.Abs(w.Mean()*float64(len(all))-sum) > 1e-9*sum {
			t.Fatalf("%+v of %v", w, all)
		}
		for _, q := range []float64{0.01, 0.5, 0.95, 0.99, 1} {
			want := all[max(0, int(math.Ceil(q*float64(len(all))-1e-9))-1)]
			if got := w.At(q); math.Abs(got-want) > 6e-3*want+1e-3 {
				t.Fatalf("%v of them waited at most %v, not %v: %v", q, want, got, all)
			}
		}
	})
	var none Waits
	if none.Mean() != 0 || none.At(0.5) != 0 {
		t.Errorf("no jobs, but waits of %v, %v", none.Mean(), none.At(0.5))
	}
	var three Waits
	for _, x := range []float64{18, 18, 3590, 109_199} {
		three.Add(x)
	}
	if got := [...]float64{three.At(0.5), three.At(0.75), three.At(1)}; got != [...]float64{18, 3590, 109_000} {
		t.Errorf("to three digits: %v", got)
	}
	var ages Waits
	ages.Add(1e15)
	if ages.At(0.5) > 1e15 || ages.Longest != 1e15 {
		t.Errorf("ages are %v", ages.At(0.5))
	}
}
