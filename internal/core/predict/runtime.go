package predict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"caelum/internal/core/mig"
)

// timeWindow is the number of complete runs that determine the expected run time and compute slices. It is larger than
// the window for memory, because an outdated run time does less harm than an outdated peak.
const timeWindow = 20

// priorSigma and priorRuns describe the assumed scatter of run times before any runs exist. priorSigma is the standard
// deviation of the logarithm of the run time. priorRuns is the number of runs that have the same weight as this
// assumption.
const (
	priorSigma = 0.2
	priorRuns  = 2
)

// time computes the expected run time of the next run: the median of the run times in the window, each scaled to the
// slice of the last run. Low and High are the bounds of Student's prediction interval, computed from the logarithms of
// the run times. Runs that reached their time limit count only if no run ended by itself.
func (n *Need) time(runs []attempt) {
	ended := func(r attempt) bool { return r.State == "COMPLETED" }
	if n.Ended = slices.ContainsFunc(runs, ended); !n.Ended {
		ended = func(r attempt) bool { return r.complete }
	}
	runs = slices.DeleteFunc(slices.Clone(runs), func(r attempt) bool { return r.Seconds <= 0 || !ended(r) })
	if len(runs) == 0 {
		return
	}
	last := runs[len(runs)-1].compute()
	var logs []float64
	for _, r := range runs {
		logs = append(logs, math.Log(r.Seconds*n.scale(r.compute(), last)))
	}
	middle := median(logs)
	squares := priorRuns * priorSigma * priorSigma
	for _, x := range logs {
		squares += (x - middle) * (x - middle)
	}
	count := float64(len(logs))
	freedom := priorRuns + count - 1
	off := distuv.StudentsT{Sigma: math.Sqrt(squares / freedom * (1 + 1/count)), Nu: freedom}.Quantile(0.9)
	n.Compute = last
	n.Seconds, n.Low, n.High = math.Exp(middle), math.Exp(middle-off), math.Exp(middle+off)
}

// scale returns the factor by which the run time changes with the number of compute slices, or 1 if from or to is
// unknown.
func (n Need) scale(from, to int) float64 {
	if from <= 0 || to <= 0 {
		return 1
	}
	return takes(n.Busy, to) / takes(n.Busy, from)
}

// Takes returns Seconds, Low and High for a slice with the given number of compute slices.
func (n Need) Takes(compute int) (seconds, low, high float64) {
	f := n.scale(n.Compute, compute)
	return f * n.Seconds, f * n.Low, f * n.High
}

// TakesOn returns Seconds, Low and High for the k-th profile of b. They do not depend on the size of a fraction, and a
// run on a MIG instance does not show how much slower the job is on a GPU that it shares.
func (n Need) TakesOn(b *mig.Model, k int) (seconds, low, high float64) {
	if b.Fractions > 0 {
		return n.Seconds, n.Low, n.High
	}
	return n.Takes(b.Profiles[k].Compute)
}

// unknownSigma is the standard deviation of the logarithm of a run time whose 90% quantile is unknown.
const unknownSigma = 0.4

// Expect returns the expected total run time, in seconds, of a job that has been running for ran seconds. The run time
// is assumed to be lognormally distributed: seconds is its median, and high is its 90% quantile, or 0 if unknown. The
// result is the mean of the run times that are longer than the last step reached, so that it changes only a few times
// during a run. The first step is 0, the second is one standard deviation below the median, and the last is at most
// ran. until is the next step, in seconds, and total is never less than until.
func Expect(seconds, high, ran float64) (total, until float64) {
	sigma := unknownSigma
	if high > 0 {
		sigma = math.Log(max(high/seconds, 1)) / quantile90
	}
	step, until := 0.0, seconds*math.Exp(-sigma)
	if !(until > 0) || math.IsInf(ran, 1) {
		return seconds, seconds
	}
	for until <= ran {
		step, until = until, until*max(math.Exp(sigma/2), leastStep)
	}
	return max(meanAbove(step, seconds, sigma), until), until
}

const (
	quantile90 = 1.2816 // the 90% quantile of the standard normal distribution
	leastStep  = 1.1    // the ratio of two steps if the run times of a job are almost equal
)

// meanAbove returns the mean of the values above a bound in a lognormal distribution with the given median and sigma,
// or 0 if such values are too improbable for a float64.
func meanAbove(bound, median, sigma float64) float64 {
	if sigma == 0 {
		return median
	}
	z := math.Log(bound/median) / sigma
	above := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	if above(z) == 0 {
		return 0
	}
	return median * math.Exp(sigma*sigma/2) * above(z-sigma) / above(z)
}
