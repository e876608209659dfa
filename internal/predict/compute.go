package predict

import (
	"maps"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// enough is the minimum number of runs on slices of one size. With fewer runs, the run times on this size are not
// compared with the run times on other sizes.
const enough = 3

// takes returns the run time on a number of compute slices, relative to the run time on one slice. Only the part of the
// time during which one slice is busy is divided by the number of slices (Amdahl's law). The model assumes that a
// script that keeps a small slice busy can also keep a larger slice busy. This is not true for every script, so the
// model tends to recommend larger slices than necessary.
func takes(busy, slices float64) float64 { return 1 - busy + busy/slices }

// busyOn returns the share of its run time for which a script would keep one compute slice busy. util is the share of
// the run time for which the script kept the given number of slices busy.
func busyOn(util, slices float64) float64 { return util * slices / (1 - util + util*slices) }

// busy returns the value of Need.Busy. It compares run times on slices of several sizes, or uses utilisation if that
// comparison is impossible. It returns -1 if both are unknown.
func busy(runs []attempt) float64 {
	if b, ok := busyByTimes(runs); ok {
		return b
	}
	var all []float64
	for _, r := range runs {
		if r.complete && r.Util >= 0 && r.slices() > 0 {
			all = append(all, busyOn(min(r.Util, 1), r.slices()))
		}
	}
	if len(all) == 0 {
		return -1
	}
	return median(all)
}

// busyByTimes returns the share that best explains the median run times on slices of different sizes. It considers only
// runs on the GPU model of the last run, and fits a line through the medians as a function of 1/slices.
func busyByTimes(runs []attempt) (float64, bool) {
	seconds := map[float64][]float64{}
	for _, r := range runs {
		if r.State == "COMPLETED" && r.slices() > 0 && r.Seconds > 0 && r.Board == runs[len(runs)-1].Board {
			seconds[r.slices()] = append(seconds[r.slices()], r.Seconds)
		}
	}
	var x, y, weights []float64
	for _, size := range slices.Sorted(maps.Keys(seconds)) {
		if of := seconds[size]; len(of) >= enough {
			x, y, weights = append(x, 1/size), append(y, median(of)), append(weights, float64(len(of)))
		}
	}
	if len(x) < 2 {
		return 0, false
	}
	rest, shared := stat.LinearRegression(x, y, weights, false)
	rest, shared = max(rest, 0), max(shared, 0)
	return shared / (rest + shared), true
}

// limit returns the run time in seconds of the last run that reached its time limit. It returns 0 if no run reached its
// time limit or no run completed.
func limit(runs []attempt) (seconds float64) {
	done := false
	for _, r := range runs {
		switch r.State {
		case "TIMEOUT":
			seconds = r.Seconds
		case "COMPLETED":
			done = true
		}
	}
	if !done {
		return 0
	}
	return seconds
}

// fast reports whether this number of compute slices of a GPU model is sufficient. The whole GPU is always sufficient,
// because no profile has more slices. A time limit that would be too short even on the whole GPU is ignored, because it
// was probably a mistake or a test.
func (n Need) fast(compute, all int) bool {
	if compute >= all || n.Busy < 0 {
		return true
	}
	if n.MaxSlowdown > 0 && takes(n.Busy, float64(compute)) > n.MaxSlowdown*takes(n.Busy, float64(all)) {
		return false
	}
	here, _, _ := n.Takes(compute)
	atBest, _, _ := n.Takes(all)
	return n.Limit <= 0 || here <= n.Limit || atBest > n.Limit
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	k := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[k]
	}
	return (sorted[k-1] + sorted[k]) / 2
}
