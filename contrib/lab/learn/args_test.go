package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestArguments checks that the peak never decreases with the number if it follows the number without scatter, that it
// does not depend on a seed, and that most submissions repeat a number of the job.
func TestArguments(t *testing.T) {
	for _, a := range argPopulations() {
		rng := rand.New(rand.NewPCG(1, 7))
		people := drawUsers(rng, users)
		all, repeated := 0, 0
		for range 100 {
			seen := map[float64]bool{}
			subs := a.submissions(rng, standard.drawWork(rng, people))
			for _, s := range subs {
				all++
				if seen[s.args[0]] {
					repeated++
				}
				seen[s.args[0]] = true
			}
			slices.SortFunc(subs, func(x, y submission) int { return cmp.Compare(x.args[0], y.args[0]) })
			monotone := slices.IsSortedFunc(subs, func(x, y submission) int { return cmp.Compare(x.peak, y.peak) })
			if monotone != (a.sigma == 0) {
				t.Errorf("%s, sigma %g: monotone is %v", a.name, a.sigma, monotone)
			}
		}
		if share := float64(repeated) / float64(all); (a.peak != nil) != (math.Abs(share-0.63) < 0.05) {
			t.Errorf("%s: %.2f of the submissions repeat a number", a.name, share)
		}
	}
}
