package predict

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// priorScriptSigma and priorScripts describe the assumed scatter of the peaks of similar scripts before any of them
// have run: the standard deviation of the logarithm of the peak, and the number of scripts that have the same weight as
// this assumption.
const (
	priorScriptSigma = 0.15
	priorScripts     = 0.5
)

// SimilarWindow is the number of scripts that determine the need of a similar one. FewestSimilar is the lowest number
// of scripts for a prediction.
const (
	SimilarWindow = 20
	FewestSimilar = 2
)

// PredictSimilar predicts the need of a script that has no runs. h contains runs of similar scripts, from which the run
// time and the compute slices follow as in Predict. peaks holds the highest peak of each of these scripts, in MiB,
// oldest first. HighestMiB is the median of the script's peak, and PeakMiB its quantile (Site.FirstRunQuantile). Both
// are larger than the slices on which similar scripts have run out of memory since the last complete run. It returns
// false if no run is complete or there are fewer than FewestSimilar peaks.
func PredictSimilar(h History, peaks []float64, site Site) (Need, bool) {
	n, ok := Predict(h, site)
	if !ok || len(peaks) < FewestSimilar {
		return Need{Level: h.Level, Busy: UnknownBusy, MaxSlowdown: site.MaxSlowdown}, false
	}
	n.HighestMiB, n.PeakMiB = similar(peaks, site.FirstRunQuantile)
	n.Why = fmt.Sprintf("a first run needs at most %.0f MiB with a probability of %g%%, judging by %d similar scripts",
		n.PeakMiB, 100*site.FirstRunQuantile, len(peaks))
	if less := tooLittle(attempts(h.Runs)); less >= n.PeakMiB {
		n.HighestMiB, n.PeakMiB = less+1, less+1
		n.Why = fmt.Sprintf("a similar script has run out of memory on a slice with %.0f MiB", less)
	}
	return n, true
}

// similar returns the median and a quantile of a script's peak. Similar scripts may be successive versions of one
// program, each near the one before, or several programs in any order. There are therefore two of Student's prediction
// intervals for the logarithms, around the last peak (from the changes between peaks) and around the mean of the peaks.
// The narrower one applies.
func similar(peaks []float64, quantile float64) (median, covered float64) {
	var logs []float64
	for _, p := range peaks {
		logs = append(logs, math.Log(max(p, 1)))
	}
	count, mean := float64(len(logs)), stat.Mean(logs, nil)
	apart := float64(priorScripts * priorScriptSigma * priorScriptSigma)
	changes := apart
	for k, x := range logs {
		apart += (x - mean) * (x - mean)
		if k > 0 {
			changes += (x - logs[k-1]) * (x - logs[k-1])
		}
	}
	freedom := priorScripts + count - 1
	around, sigma := logs[len(logs)-1], math.Sqrt(changes/freedom)
	if wide := math.Sqrt(apart / freedom * (1 + 1/count)); wide < sigma {
		around, sigma = mean, wide
	}
	return math.Exp(around), math.Exp(distuv.StudentsT{Mu: around, Sigma: sigma, Nu: freedom}.Quantile(quantile))
}
