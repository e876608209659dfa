package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// TestPopulations checks the share of failed runs, the scatter of the peaks, and that failed runs can use little memory
// in the populations whose memory use rises from zero.
func TestPopulations(t *testing.T) {
	for _, p := range append([]population{standard}, variants...) {
		rng := rand.New(rand.NewPCG(1, 7))
		people := drawUsers(rng, users)
		runs, failed, low := 0, 0, 0
		var changes []float64
		for range 500 {
			w := p.drawWork(rng, people)
			w.outliers, w.versions, w.drift, w.spike = false, false, 0, 0
			all := w.submissions(rng)
			for k, s := range all {
				runs++
				if k > 0 && w.level < 15000 { // the peak is at most 39 GiB
					changes = append(changes, math.Log(s.peak/all[k-1].peak))
				}
				if s.state != "FAILED" {
					continue
				}
				failed++
				if r, _ := w.run(s, 1, "7g.40gb", 40960); r.PeakMiB < s.peak/2 {
					low++
				}
			}
		}
		if share := float64(failed) / float64(runs); math.Abs(share-p.failing) > 0.01 {
			t.Errorf("%s: %.3f of the runs failed", p.name, share)
		}
		if p.noise > 0 && math.Abs(stat.StdDev(changes, nil)-math.Sqrt2*p.noise) > 0.02 {
			t.Errorf("%s: the changes in the peak have a standard deviation of %.3f", p.name, stat.StdDev(changes, nil))
		}
		if share := float64(low) / float64(failed); p.base == 0 && (share < 0.2 || share > 0.3) {
			t.Errorf("%s: %.3f of the failed runs used less than half of the peak", p.name, share)
		}
	}
}
