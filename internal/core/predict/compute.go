package predict

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"caelum/internal/core/mig"
)

// The prior of a script's busy share b has the density 4 b^3, whose mean is 0.8. The busy shares of 32 training models,
// fitted to the step times that MISO's authors measured on an A100, have a mean of 0.80, and one tenth of them are
// below 0.48.
const (
	priorExponent = 3
	// UnknownBusy is the busy share assumed for a job whose runs do not show it: the mean of the prior.
	UnknownBusy = (priorExponent + 1.0) / (priorExponent + 2.0)
)

const (
	// busySteps is the number of busy shares between 0 and 1 for which busy computes probabilities.
	busySteps = 50
	// utilError is the assumed standard error of a busy share computed from the mean utilisation.
	utilError = 0.1
)

// takes returns the run time on an instance with the given number of compute slices, relative to the run time on an
// instance with one compute slice. Only the time during which a single slice would be busy is divided by the instance's
// resources, relative to those of one compute slice (Amdahl's law). The model assumes that a script that keeps a small
// slice busy can also keep a larger one busy. Some scripts cannot, so the model tends to recommend larger slices than
// necessary.
func takes(busy float64, compute int) float64 { return 1 - busy + 2*busy/resources(compute) }

// resources returns the sum of the numbers of compute slices and memory slices of an instance. The memory slices share
// the memory bandwidth equally. An instance with 3 compute slices has 4 memory slices, and one with 7 has 8; for the
// others, both numbers are the same (NVIDIA's MIG User Guide, "A100 MIG Profiles"). Instances with additional memory,
// such as 1g.10gb of an A100-40GB, are counted like those without. With compute slices alone, the standard deviation
// of the differences between the logarithms of MISO's 145 step times and of the fitted ones is 0.070 instead of 0.056.
func resources(compute int) float64 {
	switch compute {
	case 3, 7:
		return float64(2*compute + 1)
	}
	return float64(2 * compute)
}

// BusyOn returns the busy share of a script, computed from util, the fraction of the run time for which the script kept
// an instance with the given number of compute slices busy.
func BusyOn(util float64, compute int) float64 {
	times := resources(compute) / 2
	return util * times / (1 - util + util*times)
}

// Slowdown compares a job's run times on two slices: it returns the run time with the first number of compute slices
// (on) divided by the run time with the second number (than). busy is the job's busy share, from 0 to 1.
func Slowdown(busy float64, on, than int) float64 {
	return takes(busy, on) / takes(busy, than)
}

// busy returns the values of Need.Busy and Need.BusyKnown. All possible shares are weighted by their prior density and
// by the probability of the observations: the run times of completed runs on the GPU model of the last run, the slices
// on which runs reached their time limit, and the utilisation. With the returned share, the logarithm of the relative
// run time on the whole GPU is the weighted mean of the logarithms for all shares. The weighted mean of the
// shares would underestimate how much slower small slices are. If runs completed on slices of different sizes, all
// shares have the same prior density, because with the other prior, the slices chosen for these jobs were too large
// (contrib/lab/results.md, "Other speeds and GPU models").
func busy(runs []attempt) (share float64, known bool) {
	o := observe(runs)
	if !o.informative() {
		return UnknownBusy, false
	}
	exponent := float64(priorExponent)
	if o.differ(o.completed) {
		exponent = 0
	}
	most := largest(runs[len(runs)-1].GPUType)
	sum, weights := 0.0, 0.0
	for k := range busySteps {
		b := (float64(k) + 0.5) / busySteps
		w := math.Pow(b, exponent) * o.likelihood(b)
		sum, weights = sum+w*math.Log(takes(b, most)), weights+w
	}
	if weights == 0 { // the observations contradict the model
		return UnknownBusy, false
	}
	return (1 - math.Exp(sum/weights)) / (1 - takes(1, most)), true
}

// largest returns the number of compute slices of the largest instances of the GPU models with the given Type, or 7 if
// no model has this Type.
func largest(gpuType string) (compute int) {
	for _, b := range mig.Models() {
		for _, p := range b.Profiles {
			if b.Type == gpuType {
				compute = max(compute, p.Compute)
			}
		}
	}
	return cmp.Or(compute, 7)
}

// observations holds the runs from which a busy share is computed.
type observations struct {
	completed []timed // runs in the COMPLETED state
	reached   []timed // runs that ended at their time limit
	util      float64 // the median of the busy shares derived from the utilisation of single runs; -1: unknown
}

// timed is a run on an instance with the given number of compute slices. log is the logarithm of the run time in
// seconds.
type timed struct {
	compute int
	log     float64
}

func observe(runs []attempt) (o observations) {
	var shares []float64
	for _, r := range runs {
		if r.compute() == 0 || r.Seconds <= 0 || r.GPUType != runs[len(runs)-1].GPUType {
			continue
		}
		switch t := (timed{r.compute(), math.Log(r.Seconds)}); r.State {
		case "COMPLETED":
			o.completed = append(o.completed, t)
		case "TIMEOUT":
			o.reached = append(o.reached, t)
		}
		if r.complete && r.Util >= 0 {
			shares = append(shares, BusyOn(min(r.Util, 1), r.compute()))
		}
	}
	if o.util = -1; len(shares) > 0 {
		o.util = median(shares)
	}
	return o
}

// informative reports whether the observations provide information beyond the prior.
func (o observations) informative() bool {
	return o.util >= 0 || o.differ(o.completed) || o.differ(o.reached)
}

// differ reports whether any run in the list used a slice whose size differs from the size of the first completed run's
// slice.
func (o observations) differ(all []timed) bool {
	return len(o.completed) > 0 &&
		slices.ContainsFunc(all, func(t timed) bool { return t.compute != o.completed[0].compute })
}

// likelihood returns a number proportional to the probability of the observations, given a busy share. The run times
// are first divided by takes. The logarithms of the results are assumed to be normally distributed. Their mean is
// unknown, and their variance has the same prior as the variance of run times (priorSigma). The probability is
// therefore a power of the sum of squares. The run time of a later run follows Student's distribution, which gives the
// probability that this run exceeds a time limit.
func (o observations) likelihood(b float64) float64 {
	l := 1.0
	if o.util >= 0 {
		d := (b - o.util) / utilError
		l = math.Exp(-d * d / 2)
	}
	n := float64(len(o.completed))
	if n == 0 {
		return l
	}
	mean := 0.0
	for _, t := range o.completed {
		mean += (t.log - math.Log(takes(b, t.compute))) / n
	}
	squares := priorRuns * priorSigma * priorSigma
	for _, t := range o.completed {
		d := t.log - math.Log(takes(b, t.compute)) - mean
		squares += d * d
	}
	freedom := priorRuns + n - 1
	l *= math.Pow(squares, -freedom/2)
	next := distuv.StudentsT{Mu: mean, Sigma: math.Sqrt(squares / freedom * (1 + 1/n)), Nu: freedom}
	for _, t := range o.reached {
		l *= next.Survival(t.log - math.Log(takes(b, t.compute)))
	}
	return l
}

// limit returns the run time, in seconds, of the last run that reached its time limit, or 0 if there is no such run or
// no run completed.
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

// fast reports whether the given number of compute slices is sufficient. all is the number of compute slices in the
// whole GPU, which is always sufficient because no profile has more compute slices. A time limit that is too short even
// for the whole GPU was probably a mistake or a test and is ignored.
func (n Need) fast(compute, all int) bool {
	if compute >= all || !n.BusyKnown {
		return true
	}
	if n.MaxSlowdown > 0 && takes(n.Busy, compute) > n.MaxSlowdown*takes(n.Busy, all) {
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
