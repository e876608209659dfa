package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSimilar checks that the covered memory of a first run follows what is known: one script says nothing, more equal
// scripts narrow it down, and scattered ones widen it.
func TestSimilar(t *testing.T) {
	of := func(peaks ...float64) float64 {
		_, covered := similar(peaks, DefaultSite.FirstRunQuantile)
		return covered / peaks[len(peaks)-1]
	}
	one, two, five := of(5000), of(5000, 5000), of(5000, 5000, 5000, 5000, 5000)
	if !(one > 8 && one > two && two > five && five > 1 && five < 1.2) {
		t.Errorf("the covered memory is %.3g, %.3g and %.3g times the peak of 1, 2 and 5 equal scripts", one, two, five)
	}
	if wide := of(2500, 10000, 4000, 6000, 5000); wide < 2*five {
		t.Errorf("%.3g of scattered scripts, %.3g of equal ones", wide, five)
	}
	median, covered := similar([]float64{1000, 2000, 4000, 8000}, 0.5)
	if math.Abs(median-8000) > 1 || math.Abs(covered-8000) > 1 {
		t.Errorf("after doubling, the median of the next script is %.0f MiB (%.0f), want the last", median, covered)
	}
	if n, ok := PredictSimilar(History{Level: ByName}, []float64{5000, 5000}, DefaultSite); ok || n.PeakMiB != 0 {
		t.Errorf("without a complete run, the need is %+v", n)
	}
}

// TestSimilarCovers draws scripts around a mean and scripts that are each near the one before. The share of next
// scripts whose peak is covered must be near the quantile.
func TestSimilarCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, walk := range []bool{false, true} {
		for _, count := range []int{3, 8, 20} {
			covered := 0
			const rounds = 4000
			for range rounds {
				level, sigma := 8.5, 0.1+0.6*rng.Float64()
				next := func() float64 {
					x := level + sigma*rng.NormFloat64()
					if walk {
						level = x
					}
					return math.Exp(x)
				}
				var peaks []float64
				for range count {
					peaks = append(peaks, next())
				}
				if _, most := similar(peaks, 0.94); next() <= most {
					covered++
				}
			}
			if share := float64(covered) / rounds; share < 0.90 || share > 0.98 {
				t.Errorf("walk %v, %d scripts: %.1f%% of the next scripts are covered, want about 94%%", walk, count,
					100*share)
			}
		}
	}
}
