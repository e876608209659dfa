package main

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"caelum/internal/core/predict"
)

// forecaster is a rule that forecasts a run's peak.
type forecaster struct {
	name  string
	start func(c *curve) forecasting
}

// forecasting is the state of a forecaster for one run. add adds the sample at step k. peak returns the forecast peak
// in MiB. alarm reports whether the job should be requeued on a larger slice.
type forecasting interface {
	add(k int, ran float64)
	peak(end predict.End) float64
	alarm(end predict.End) bool
}

// own lists two variants of Caelum's forecast: one that uses only NVML's samples, and one that also uses the program's
// reports.
var own = []forecaster{
	{"Caelum (NVML)", func(c *curve) forecasting { return &series{c: c} }},
	{"Caelum (reports)", func(c *curve) forecasting { return &series{c: c, reports: c.allocated != nil} }},
}

var forecasters = append([]forecaster{
	simpleRule("the last value", func(s *samples, _ float64) float64 { return s.y[len(s.y)-1] }),
	simpleRule("the highest value", func(s *samples, _ float64) float64 { return slices.Max(s.y) }),
	simpleRule("exponential smoothing", smoothed),
	simpleRule("linear regression", func(s *samples, horizon float64) float64 { return linear(s.t, s.y, horizon) }),
	simpleRule("MIGPro", migpro),
}, own...)

// series is the state of Caelum's forecast. If reports is true, the program reports its allocator's memory, and the
// series leaves out memory that the allocator could return (usage.Monitor).
type series struct {
	c       *curve
	reports bool
	past    predict.Series
	top     float64 // the highest amount of memory that the program has needed so far
}

func (s *series) add(k int, ran float64) {
	mib := s.c.seen(k)
	if s.top = max(s.top, s.c.need[k]); s.reports {
		mib = min(mib, s.top)
	}
	s.past.Add(ran, mib)
}

func (s *series) peak(end predict.End) float64 { return s.past.Forecast(end, s.c.slice).PeakMiB }

func (s *series) alarm(end predict.End) bool { return s.past.Forecast(end, s.c.slice).Exceeds }

// samples is the state of a simple rule. The first sample is taken at the first iteration. next returns the forecast
// peak at a given time. The rule raises an alarm if three consecutive forecasts exceed the slice and differ by at most
// 5%.
type samples struct {
	c     *curve
	first int
	t, y  []float64
	next  func(s *samples, horizon float64) float64
	last  []float64
}

func simpleRule(name string, next func(s *samples, horizon float64) float64) forecaster {
	return forecaster{name, func(c *curve) forecasting { return &samples{c: c, next: next} }}
}

func (s *samples) add(k int, ran float64) {
	if float64(k) < loading*curveSteps {
		s.t, s.y, s.first = s.t[:0], s.y[:0], k
	}
	s.t, s.y = append(s.t, ran), append(s.y, s.c.seen(k))
}

func (s *samples) peak(end predict.End) float64 {
	return s.next(s, max(cmp.Or(end.Total, end.Learned, end.Limit), end.Ran))
}

func (s *samples) alarm(end predict.End) bool {
	s.last = append(s.last, s.peak(end))
	if len(s.last) < 3 {
		return false
	}
	s.last = s.last[len(s.last)-3:]
	low := slices.Min(s.last)
	return low > s.c.slice && slices.Max(s.last) <= 1.05*low
}

// smoothed is Holt's linear exponential smoothing. alpha and beta are the weights of the newest sample.
func smoothed(s *samples, horizon float64) float64 {
	const alpha, beta = 0.1, 0.05
	level, trend := s.y[0], 0.0
	for _, v := range s.y[1:] {
		before := level
		level = alpha*v + (1-alpha)*(level+trend)
		trend = beta*(level-before) + (1-beta)*trend
	}
	ran := s.t[len(s.t)-1]
	return max(slices.Max(s.y), level+trend*curveSteps*(horizon-ran)/s.c.seconds)
}

// linear returns the upper 99% bound of a linear regression of the highest value so far.
func linear(t, y []float64, horizon float64) float64 {
	tops := slices.Clone(y)
	for k := 1; k < len(tops); k++ {
		tops[k] = max(tops[k], tops[k-1])
	}
	if len(t) < 3 {
		return tops[len(tops)-1]
	}
	const z99 = 2.326
	b, a := stat.LinearRegression(t, tops, nil, false)
	squares := 0.0
	for k := range t {
		squares += (tops[k] - a*t[k] - b) * (tops[k] - a*t[k] - b)
	}
	return max(tops[len(tops)-1], a*horizon+b+z99*math.Sqrt(squares/float64(len(t))))
}

// migpro is MIGPro's forecast: linear regressions of the requested memory and of the inverse reuse ratio, which is the
// requested memory divided by the reserved memory. Without an allocator, it is only the linear regression. The forecast
// of the reserved memory is at most five times the requested memory, because the inverse ratio may become 0.
func migpro(s *samples, horizon float64) float64 {
	if s.c.allocated == nil || len(s.t) < 3 {
		return linear(s.t, s.y, horizon)
	}
	n := len(s.y)
	allocated := s.c.allocated[s.first : s.first+n]
	inverse, top := make([]float64, n), 0.0
	for k := range n {
		top = max(top, allocated[k])
		inverse[k] = top / max(s.y[k]-s.c.context, top)
	}
	d, c := stat.LinearRegression(s.t, inverse, nil, false)
	ratio := min(max(c*horizon+d, 0.2), 1)
	return max(slices.Max(s.y), linear(s.t, allocated, horizon)/ratio+s.c.context)
}
