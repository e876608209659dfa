package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// memory computes the memory need, which is the larger of two peaks plus a margin: the peak of the last complete run,
// and the second highest peak in the window. The need is at least covered MiB, at least the peak of any later
// incomplete run, also the forecast one if the agent stopped the run because of it, and more than the memory of every
// slice on which a run ran out of memory. A single high peak may be accidental, so it is ignored once another complete
// run has followed. A peak that occurred twice is used as long as it remains in the window. covered is the PeakQuantile
// of the next peak.
func (n *Need) memory(all []attempt, site Site) {
	window := site.window()
	if proved(all) {
		window *= 2
	}
	runs, covered := since(all, window), coveredMiB(since(all, timeWindow), site.PeakQuantile)
	var peaks []float64 // the peaks of complete runs
	// The highest peak after the last complete run, and the highest forecast for which the agent stopped a run.
	open, foreseen := 0.0, 0.0
	for _, r := range runs {
		foreseen = max(foreseen, r.ForeseenMiB)
		if open = max(open, r.PeakMiB, foreseen); r.complete {
			open, foreseen = 0, 0
			peaks = append(peaks, r.PeakMiB)
		}
	}
	n.Runs = len(peaks)
	margin := 0.0
	if n.Runs > 0 {
		n.HighestMiB = max(peaks[n.Runs-1], second(peaks))
		margin = scatter(peaks, site)
	}
	n.PeakMiB = max(n.HighestMiB*(1+margin), covered, open)
	less := tooLittle(runs)
	switch {
	case less > 0 && less >= n.PeakMiB:
		n.Why = whyLarger(runs)
	case covered > 0 && covered == n.PeakMiB:
		n.Why = fmt.Sprintf("the next peak will be at most %.0f MiB with a probability of %g%%",
			covered, 100*site.PeakQuantile)
	case n.Runs > 0 && open > n.HighestMiB*(1+margin) && open == foreseen:
		n.Why = fmt.Sprintf("a run was stopped because its forecast peak was %.0f MiB", open)
	case n.Runs > 0 && open > n.HighestMiB*(1+margin):
		n.Why = fmt.Sprintf("an incomplete run used %.0f MiB: the job needs at least that much", open)
	default:
		n.Why = whyPeak(runs, n.Runs, cmp.Or(n.HighestMiB, open), margin)
	}
	n.HighestMiB = max(n.HighestMiB, open)
	if less > 0 {
		n.PeakMiB = max(n.PeakMiB, less+1)
	}
}

// second returns the second largest number, or 0 if the list contains fewer than two numbers.
func second(of []float64) float64 {
	if len(of) < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)-2]
}

// scatter returns the margin as a fraction of the peak. It is half of the quantile (configured by the site) of the
// changes in the peak between consecutive runs, but at most the site's margin. Two changes equal to the site's margin
// are added to the observed changes, so that the margin is large while there are only a few runs.
func scatter(peaks []float64, site Site) float64 {
	half := []float64{site.Margin, site.Margin}
	for k := 1; k < len(peaks); k++ {
		half = append(half, math.Expm1(math.Abs(math.Log(max(peaks[k], 1)/max(peaks[k-1], 1)))/2))
	}
	slices.Sort(half)
	return min(site.Margin, half[int(site.quantile()*float64(len(half)-1))])
}

// priorPeakSigma and priorPeaks describe the assumed scatter of the peaks before any runs exist: the standard deviation
// of the logarithm of the peak, and the number of runs that have the same weight as this assumption.
const (
	priorPeakSigma = 0.02
	priorPeaks     = 2
)

// coveredMiB returns a quantile of the next run's peak, in MiB, computed from the complete runs: the upper bound of
// Student's prediction interval for the logarithms of the peaks. The result is 0 if no run is complete, or if quantile
// is 0.
func coveredMiB(runs []attempt, quantile float64) float64 {
	var logs []float64
	for _, r := range runs {
		if r.complete {
			logs = append(logs, math.Log(max(r.PeakMiB, 1)))
		}
	}
	if len(logs) == 0 || quantile <= 0 {
		return 0
	}
	mean := stat.Mean(logs, nil)
	squares := priorPeaks * priorPeakSigma * priorPeakSigma
	for _, x := range logs {
		squares += (x - mean) * (x - mean)
	}
	count := float64(len(logs))
	freedom := priorPeaks + count - 1
	return math.Exp(distuv.StudentsT{
		Mu: mean, Sigma: math.Sqrt(squares / freedom * (1 + 1/count)), Nu: freedom,
	}.Quantile(quantile))
}

// tooLittle returns the memory, in MiB, of the largest slice that was too small, or 0 if there is no such slice. A
// slice was too small if a run on it certainly or possibly ran out of memory. The result is the larger of two values:
// the largest such slice after the last complete run, and the second largest in the entire window. A single failed run
// before a complete run is therefore ignored. If a run before the last complete run only possibly ran out of memory, it
// is considered only if the next complete run used more memory than its slice had, or if no run was complete on such a
// slice.
func tooLittle(runs []attempt) (most float64) {
	var short []float64
	least := math.Inf(1) // the memory of the smallest slice on which a run was complete
	for _, r := range runs {
		if r.complete {
			least = min(least, r.most())
		}
	}
	doubt := 0.0
	for _, r := range runs {
		switch {
		case r.complete:
			if doubt > 0 && doubt < r.most() && (doubt*usable < r.PeakMiB || doubt < least) {
				short = append(short, doubt) // counted once per series of consecutive failed runs
			}
			most, doubt = 0, 0
		case math.IsInf(r.most(), 1): // no larger slice exists
		case r.short:
			short = append(short, r.most())
			most = max(most, r.most())
		case r.doubtful:
			doubt = max(doubt, r.most())
			most = max(most, r.most())
		}
	}
	return max(most, second(short))
}

// whyLarger returns the sentence for Need.Why if runs with too little memory determine the need.
func whyLarger(runs []attempt) string {
	var last attempt // the last run with too little memory that followed the last complete run
	for _, r := range runs {
		switch {
		case r.complete:
			last = attempt{}
		case r.short || r.doubtful:
			last = r
		}
	}
	switch {
	case last.short:
		return "a run failed when the memory of its slice was nearly full: the job needs a larger slice"
	case last.doubtful:
		return "a run failed, possibly because it ran out of memory: " +
			"the job will get a larger slice until a run completes"
	}
	return "runs failed on smaller slices more than once, probably because they ran out of memory"
}

// whyPeak returns the sentence for Need.Why if a peak determines the need. peak is in MiB, and margin is a fraction of
// peak.
func whyPeak(runs []attempt, complete int, peak, margin float64) string {
	switch {
	case len(runs) == 0:
		return "no run was sampled"
	case complete == 0 && len(runs) == 1:
		return fmt.Sprintf("the only run was incomplete; the job needs at least %.0f MiB", peak)
	case complete == 0:
		return fmt.Sprintf("none of the %d runs was complete; the job needs at least %.0f MiB", len(runs), peak)
	case complete == 1:
		return fmt.Sprintf("the peak is %.0f MiB, from one complete run; the margin is %.1f%%", peak, 100*margin)
	}
	return fmt.Sprintf(
		"%.0f MiB is the larger of the last peak and the second highest peak of %d complete runs; the margin is %.1f%%",
		peak, complete, 100*margin,
	)
}
