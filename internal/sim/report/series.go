package report

import (
	"math"

	"caelum/internal/sim"
)

// Recorder is a [sim.Observer] that records a simulation for display on a page.
type Recorder struct {
	steps []step
	spans []sim.Span
	cut   bool // true if Ran omitted spans, because the simulation had more than mostSpans
}

// step is a period in which the recorded values did not change. Times are in seconds.
type step struct {
	from, to            float64
	busy, waiting, frag float64
}

// mostSpans is the maximum number of slices on a page. With more slices, browsers would become slow, and the boxes
// would be too small.
const mostSpans = 4000

// Passed implements [sim.Observer].
func (r *Recorder) Passed(from, to float64, busy, waiting int, frag float64) {
	r.steps = append(r.steps, step{from, to, float64(busy), float64(waiting), frag})
}

// Waited implements [sim.Observer]. It does nothing, because the page does not show the waiting times of individual
// jobs.
func (r *Recorder) Waited(string, float64) {}

// Ran implements [sim.Observer].
func (r *Recorder) Ran(s sim.Span) {
	if len(r.spans) == mostSpans {
		r.cut = true
		return
	}
	r.spans = append(r.spans, s)
}

// points is the number of points in each line.
const points = 400

// means divides the time from 0 to end into equal intervals, one for each point of a line, and returns the mean of a
// value over each interval.
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

// end returns the time at which the last recorded step ends, in seconds.
func (r *Recorder) end() (end float64) {
	for _, s := range r.steps {
		end = max(end, s.to)
	}
	return end
}

// unit returns the time unit for an axis from 0 to end seconds, as its name and its length in seconds.
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

// ticks returns about four to eight round numbers from 0 to most.
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
