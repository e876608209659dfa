package predict

import (
	"fmt"
	"math"
	"slices"
)

// memory says how much of it is needed: the most of what the last complete run used and the second most in the window,
// with a margin; what a run has used since that was not complete; and more than what a run was killed with. What
// happened once may have been chance, and is forgotten when the next run has completed; what happened twice is a need
// as long as it is in the window.
func (n *Need) memory(runs []attempt, site Site) {
	var peaks []float64 // of complete runs
	open := 0.0         // the highest since the last of these
	for _, r := range runs {
		if open = max(open, r.PeakMiB); r.complete {
			open = 0
			peaks = append(peaks, r.PeakMiB)
		}
	}
	n.Runs = len(peaks)
	margin := 0.0
	if n.Runs > 0 {
		n.HighestMiB = max(peaks[n.Runs-1], second(peaks))
		margin = scatter(peaks, site)
	}
	n.PeakMiB = max(n.HighestMiB*(1+margin), open)
	n.HighestMiB = max(n.HighestMiB, open)
	less := tooLittle(runs)
	n.why(runs, margin, less >= n.PeakMiB && less > 0)
	if less > 0 {
		n.PeakMiB = max(n.PeakMiB, less+1)
	}
}

// second is the second largest; 0: there are not so many.
func second(of []float64) float64 {
	if len(of) < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)-2]
}

// scatter is the margin, as a share: half of what the peak changes by from one run to the next, of the changes the one
// at site's quantile, at most site's margin. What is believed before there are any is two deviations of site's margin.
func scatter(peaks []float64, site Site) float64 {
	half := []float64{site.Margin, site.Margin}
	for k := 1; k < len(peaks); k++ {
		half = append(half, math.Expm1(math.Abs(math.Log(max(peaks[k], 1)/max(peaks[k-1], 1)))/2))
	}
	slices.Sort(half)
	return min(site.Margin, half[int(site.quantile()*float64(len(half)-1))])
}

// tooLittle is the largest slice that was too little, in MiB, by the runs that were killed for memory or may have been:
// of all since the last complete one, and the second largest in the window. (One that may have been was, if the next
// complete one had a larger slice.) 0: none was.
func tooLittle(runs []attempt) (most float64) {
	var short []float64
	doubt := 0.0
	for _, r := range runs {
		switch {
		case r.complete:
			if doubt > 0 && doubt < r.promised() {
				short = append(short, doubt) // once for all that failed in a row
			}
			most, doubt = 0, 0
		case r.short:
			short = append(short, r.promised())
			most = max(most, r.promised())
		case r.doubtful:
			doubt = max(doubt, r.promised())
			most = max(most, r.promised())
		}
	}
	return max(most, second(short))
}

// why is the sentence.
func (n *Need) why(runs []attempt, margin float64, short bool) {
	var last attempt // that was too little, since the last complete one
	for _, r := range runs {
		switch {
		case r.complete:
			last = attempt{}
		case r.short || r.doubtful:
			last = r
		}
	}
	switch {
	case short && last.short:
		n.Why = "a run failed with its slice's memory nearly full: it needs a larger one"
	case short && last.doubtful:
		n.Why = "it has failed on a slice on which it may have had too little memory: it is given a larger one until it completes"
	case short:
		n.Why = "it has failed on smaller slices more than once, as far as is known for want of memory"
	case len(runs) == 0:
		n.Why = "no run was looked at"
	case n.Runs == 0:
		n.Why = fmt.Sprintf("none of %s was complete; it needs at least %.0f MiB", count(len(runs)), n.HighestMiB)
	case n.Runs == 1:
		n.Why = fmt.Sprintf("at most %.0f MiB, by 1 run; %.1f%% more is the margin", n.HighestMiB, 100*margin)
	default:
		n.Why = fmt.Sprintf(
			"%.0f MiB is the most of the last run and the second most of the last %d; %.1f%% more is the margin",
			n.HighestMiB,
			n.Runs,
			100*margin,
		)
	}
}

func count(runs int) string {
	if runs == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", runs)
}
