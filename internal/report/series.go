package report

import (
	"math"

	"caelum/internal/sim"
)

// Recorder keeps what a simulation tells its observer, for a page.
type Recorder struct {
	steps []step
	spans []sim.Span
	cut   bool // more spans than are drawn
}

type step struct {
	from, to            float64
	busy, waiting, frag float64
}

// mostSpans is how many slices a page draws: more would be larger than browsers like, and finer than anybody sees.
const mostSpans = 4000

// Passed implements [sim.Observer].
func (r *Recorder) Passed(from, to float64, busy, waiting int, frag float64) {
	r.steps = append(r.steps, step{from, to, float64(busy), float64(waiting), frag})
}

// Waited implements [sim.Observer]: nothing of it is drawn.
func (r *Recorder) Waited(string, float64) {}

// Ran implements [sim.Observer].
func (r *Recorder) Ran(s sim.Span) {
	if len(r.spans) == mostSpans {
		r.cut = true
		return
	}
	r.spans = append(r.spans, s)
}

// points is how many a line has.
const points = 400

// means are those of a value over as many equal parts of the time up to end.
func (r *Recorder) means(end float64, value func(step) float64) []float64 {
	all := make([]float64, points)
	width := end / points
	for _, s := range r.steps {
		for k := int(s.from / width); k < points && float64(k)*width < s.to; k++ {
			from, to := max(s.from, float64(k)*width), min(s.to, float64(k+1)*width)
			if to > from {
				all[k] += value(s) * (to - from) / width
			}
		}
	}
	return all
}

// end is the last moment that it knows of, in seconds.
func (r *Recorder) end() (end float64) {
	for _, s := range r.steps {
		end = max(end, s.to)
	}
	return end
}

// unit is what times are given in on an axis up to end: its name and its length in seconds.
func unit(end float64) (name string, seconds float64) {
	switch {
	case end < 600:
		return "seconds", 1
	case end < 4*3600:
		return "minutes", 60
	case end < 4*86400:
		return "hours", 3600
	}
	return "days", 86400
}

// ticks are some four to eight round numbers from 0 to most.
func ticks(most float64) []float64 {
	if !(most > 0) {
		return []float64{0}
	}
	size := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if d := part * size; most/d <= 8 {
			var all []float64
			for k := 0; float64(k)*d <= most*(1+1e-9); k++ {
				all = append(all, float64(k)*d)
			}
			return all
		}
	}
	return []float64{0, most}
}
