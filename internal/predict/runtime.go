package predict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// timeWindow is the number of complete runs that determine the expected run time and compute slices. The window is
// larger than that for memory, because an outdated run time does less harm than an outdated memory peak.
const timeWindow = 20

// These constants describe the scatter of run times that is assumed before any runs exist. priorSigma is the standard
// deviation of the logarithm of the run time. priorRuns is the number of runs that have the same weight as this
// assumption.
const (
	priorSigma = 0.2
	priorRuns  = 2
)

// time computes the expected run time of the next run. It is the median of the run times in the window, each scaled to
// the slice of the last run. Low and High are the bounds of Student's prediction interval, computed from the logarithms
// of the run times. The run times of runs that reached their time limit are used only if no run ended by itself.
func (n *Need) time(runs []attempt) {
	ended := func(r attempt) bool { return r.State == "COMPLETED" }
	if !slices.ContainsFunc(runs, ended) {
		ended = func(r attempt) bool { return r.complete }
	}
	runs = slices.DeleteFunc(slices.Clone(runs), func(r attempt) bool { return r.Seconds <= 0 || !ended(r) })
	if len(runs) == 0 {
		return
	}
	last := runs[len(runs)-1].slices()
	var logs []float64
	for _, r := range runs {
		logs = append(logs, math.Log(r.Seconds*n.scale(r.slices(), last)))
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

// scale returns the factor by which the run time changes if the number of compute slices changes. It returns 1 if one
// of the numbers is unknown.
func (n Need) scale(from, to float64) float64 {
	if from <= 0 || to <= 0 {
		return 1
	}
	return takes(n.Busy, to) / takes(n.Busy, from)
}

// Takes returns Seconds, Low and High for a slice with this number of compute slices.
func (n Need) Takes(compute int) (seconds, low, high float64) {
	f := n.scale(float64(n.Compute), float64(compute))
	return f * n.Seconds, f * n.Low, f * n.High
}
