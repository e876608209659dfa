package predict

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// timeWindow is the number of complete runs from which run times and compute are predicted. It is
// larger than the window for memory, because old run times do no harm.
const timeWindow = 20

// These constants describe the scatter of run times that is assumed before any runs exist: a
// standard deviation of the logarithm, and the number of runs to which this assumption is
// equivalent.
const (
	priorSigma = 0.2
	priorRuns  = 2
)

// time sets the expected run time of the next run. This is the median of the runs in the window,
// each scaled to the slice of the last run. Low and High are the bounds of Student's prediction
// interval on the logarithms of the run times.
func (n *Need) time(runs []attempt) {
	last := 0.0
	for _, r := range runs {
		if r.complete && r.Seconds > 0 {
			last = r.slices()
		}
	}
	var logs []float64
	for _, r := range runs {
		if r.complete && r.Seconds > 0 {
			logs = append(logs, math.Log(r.Seconds*n.scale(r.slices(), last)))
		}
	}
	if len(logs) == 0 {
		return
	}
	middle := median(logs)
	squares := priorRuns * priorSigma * priorSigma
	for _, x := range logs {
		squares += (x - middle) * (x - middle)
	}
	count := float64(len(logs))
	freedom := priorRuns + count - 1
	off := distuv.StudentsT{Sigma: math.Sqrt(squares / freedom * (1 + 1/count)), Nu: freedom}.Quantile(0.9)
	n.Compute = int(last)
	n.Seconds, n.Low, n.High = math.Exp(middle), math.Exp(middle-off), math.Exp(middle+off)
}

// scale returns the factor by which the run time changes on another number of compute slices, or 1 if the factor is
// unknown.
func (n Need) scale(from, to float64) float64 {
	if n.Busy < 0 || from <= 0 || to <= 0 {
		return 1
	}
	return takes(n.Busy, to) / takes(n.Busy, from)
}

// Takes returns Seconds, Low and High on a slice with this number of compute slices.
func (n Need) Takes(compute int) (seconds, low, high float64) {
	f := n.scale(float64(n.Compute), float64(compute))
	return f * n.Seconds, f * n.Low, f * n.High
}
