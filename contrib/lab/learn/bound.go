package main

import (
	"cmp"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// The limits of any forecast are computed from the emulated runs, with knowledge that no forecast has:
//
//   - If the memory does not change within the first tenth of a run but changes later, the past does not show by how
//     much. A rule that knows the run's shape can only multiply the memory by the same factor in all of these runs. The
//     mean error with the best factor is a lower bound. All other runs are ignored.
//   - If the memory does not change before it exceeds the slice, no rule can foresee the failure.
//   - A rule that knows how the runs are drawn can compare the first tenth of a run with that of many other runs,
//     either of the same shape or of all shapes. Its error is not a bound, but it shows what can be expected.

const (
	// references is the number of runs of each shape that a run is compared with. The forecast is the median over the
	// closest of these runs.
	references, closest = 2000, 25
	// parts is the number of parts into which the first tenth of a run is divided for the comparison.
	parts = 20
	// seen is the number of samples in the first tenth of a run.
	seen = curveSteps / 10
)

// constant reports whether the memory, without noise, remains constant from the end of loading until step n.
func (c *curve) constant(n int) bool {
	first := int(loading*curveSteps) + 1
	for _, v := range c.clean[min(first, n):n] {
		if math.Abs(v-c.clean[first]) > 1e-6*v {
			return false
		}
	}
	return true
}

// hidden returns the ratio of a run's peak to its memory at 10%, without noise, or 0 if the memory changes before that
// point.
func (c *curve) hidden() float64 {
	if !c.constant(seen) {
		return 0
	}
	return slices.Max(c.clean) / c.clean[seen-1]
}

// leastError returns the sum of the relative errors of the peak forecasts for the runs with the given ratios (see
// hidden) if every forecast is the memory multiplied by the best factor. This factor is one of the ratios, because the
// sum is linear between them.
func leastError(ratios []float64) float64 {
	least := math.Inf(1)
	for _, factor := range append(ratios, 1) {
		sum := 0.0
		for _, r := range ratios {
			sum += math.Abs(factor-r) / r
		}
		least = min(least, sum)
	}
	return least
}

// beginning describes the first tenth of a run: the logarithms of the mean and the highest memory in each part,
// relative to top, the highest memory in all parts. ratio is the run's peak relative to top.
type beginning struct {
	features   []float64
	top, ratio float64
}

func begin(c *curve) (b beginning) {
	b.top = slices.Max(c.need[:seen])
	b.ratio = c.peak(curveSteps) / b.top
	for part := range slices.Chunk(c.need[:seen], seen/parts) {
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		b.features = append(b.features, math.Log(sum/float64(len(part))/b.top), math.Log(slices.Max(part)/b.top))
	}
	return b
}

func (b beginning) distance(o beginning) (sum float64) {
	for k := range b.features {
		d := b.features[k] - o.features[k]
		sum += d * d
	}
	return sum
}

// drawReferences returns the beginnings of many runs of a shape. No seed in -seeds produces any of these runs.
func drawReferences(s shape) []beginning {
	rng := rand.New(rand.NewPCG(1, 20))
	all := make([]beginning, references)
	for k := range all {
		all[k] = begin(newCurve(s, rng))
	}
	return all
}

// comparedError returns the relative error of a peak forecast that is based on the closest references.
func (b beginning) comparedError(references []beginning) float64 {
	type near struct{ distance, ratio float64 }
	var all []near // in order of their distances
	for _, o := range references {
		d := b.distance(o)
		if len(all) == closest && d >= all[closest-1].distance {
			continue
		}
		k, _ := slices.BinarySearchFunc(all, d, func(n near, d float64) int { return cmp.Compare(n.distance, d) })
		all = slices.Insert(all, k, near{d, o.ratio})
		all = all[:min(len(all), closest)]
	}
	slices.SortFunc(all, func(x, y near) int { return cmp.Compare(x.ratio, y.ratio) })
	return math.Abs(all[closest/2].ratio-b.ratio) / b.ratio
}

// bounds holds sums over runs.
type bounds struct {
	runs, hidden  int     // hidden: runs whose memory changes only after the first tenth
	own, least    float64 // sums of the errors of Caelum's forecast, and of their lower bounds
	same, any     float64 // sums of comparedError: with the same shape, and with all shapes
	fails, sudden int     // sudden: failed runs whose memory does not change until the failure
	early         int     // the other runs that fail before Caelum raises any alarm (see noAlarms)
}

func boundsOf(f forecaster, curves []*curve, same, every []beginning) (b bounds) {
	var ratios []float64
	for _, c := range curves {
		b.runs++
		b.own += peakError(c, f)
		start := begin(c)
		b.same, b.any = b.same+start.comparedError(same), b.any+start.comparedError(every)
		if r := c.hidden(); r > 1+1e-6 {
			ratios = append(ratios, r)
		}
		switch at := c.failsAt(); {
		case float64(at) < atStart*curveSteps || at == curveSteps:
			continue
		case c.constant(at):
			b.sudden++
		case float64(at) < noAlarms*curveSteps:
			b.early++
		}
		b.fails++
	}
	b.hidden, b.least = len(ratios), leastError(ratios)
	return b
}

func (b *bounds) add(o bounds) {
	b.runs, b.hidden, b.fails = b.runs+o.runs, b.hidden+o.hidden, b.fails+o.fails
	b.sudden, b.early = b.sudden+o.sudden, b.early+o.early
	b.own, b.least, b.same, b.any = b.own+o.own, b.least+o.least, b.same+o.same, b.any+o.any
}

// printBounds prints, for each shape, how much of the error and how many of the late alarms of Caelum's forecast (with
// reports) no rule can avoid.
func printBounds(w io.Writer, seeds []uint64) error {
	f := own[len(own)-1]
	known, mixed := map[string][]beginning{}, []beginning(nil)
	for _, s := range shapes {
		known[s.name] = drawReferences(s)
		mixed = append(mixed, known[s.name]...)
	}
	head := "shape, error of " + f.name + ", compared with all shapes, compared with the same shape, lower bound, " +
		"memory changes only after 10%, " +
		"runs that fail, sudden failures, other failures before 20%"
	return table(w, head, func(row func(string, ...any)) {
		print := func(name string, b bounds) {
			row("%s, %s, %s, %s, %s, %s, %d, %s, %s", name, share(b.own, b.runs), share(b.any, b.runs),
				share(b.same, b.runs), share(b.least, b.runs), share(float64(b.hidden), b.runs), b.fails,
				share(float64(b.sudden), b.fails), share(float64(b.early), b.fails))
		}
		var every, growing bounds
		for _, s := range shapes {
			b := boundsOf(f, drawCurves(s, seeds), known[s.name], mixed)
			print(s.name, b)
			every.add(b)
			if s.grows {
				growing.add(b)
			}
		}
		print("growing shapes", growing)
		print("all", every)
	})
}
