package predict

import (
	"maps"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// enough is how many runs there are at least on slices of one size, if their run times are compared with those on
// another.
const enough = 3

// takes is how long work runs on so many compute slices, compared with one: the part that kept one slice busy is shared
// out, the rest stays (Amdahl's law). It is pessimistic where work could not have used more than its slice had: who
// keeps all of a small slice busy need not be twice as fast on twice as much.
func takes(busy, slices float64) float64 { return 1 - busy + busy/slices }

// busyOn is the share of its time on one compute slice that work would keep that busy, by the share of its time on so
// many that it kept these busy.
func busyOn(util, slices float64) float64 { return util * slices / (1 - util + util*slices) }

// busy is Need's, from run times on slices of several sizes, else from utilisation; -1: neither is known.
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

// busyByTimes fits a line through the median run times by the inverse of the compute slices, on the GPU model of the
// last run.
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

// limit is how long the last run had that ran into its time limit, if others were done before theirs; 0: no need to
// ask.
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

// fast reports whether so many of a GPU model's compute slices are enough. The whole GPU model always is: there is no
// more. A limit that would be too short there too was a mistake, or a try.
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
