package growtrace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Job is a short job that is submitted once, unless its slice has too little memory. Its run time is the same on all
// profiles.
type Job struct {
	Submit  float64 // seconds since the start of the trace
	Seconds float64 // the duration of a complete run
	Limit   float64 // the time limit in seconds, a whole number of minutes
	PeakMiB float64
	Until   float64 // the fraction of the run after which it fails for a reason other than memory, or 1
	Curve
}

const (
	// The median, minimum and maximum peak in MiB. The peaks have the distribution of the populations of
	// `contrib/lab/learn grow`, in which 40% of the peaks fit into a 1g.5gb slice.
	typical, least, most = 6144, 512, 36 << 10
	// Runs take 60 to 200 s: an agent makes forecasts only after the first minute, and a longer trace would take too
	// long on a real cluster.
	shortest, longest = 60, 200
	// Loading is the time, in seconds, in which the memory use of a run rises from 0 to its level on the curve. The
	// programs load their data in many steps, so the agents' samples also show the memory use of a run that fails at
	// the start.
	Loading = 5
	// between is the mean time between two submissions, in seconds.
	between = 3
	// failing is the fraction of the jobs that fail for a reason other than memory.
	failing = 0.1
)

// Trace returns the first n jobs of the trace with the given seed, in order of submission. The curves are those of Draw
// with three changes: there are at most 25 jumps, no rise is shorter than twice Loading, and there are no decreases
// after the first epoch, because these do not affect the peak.
func Trace(seed uint64, n int) (all []Job) {
	rng := rand.New(rand.NewPCG(seed, 1))
	at := 0.0
	for range n {
		at += between * rng.ExpFloat64()
		j := Job{Submit: at, Seconds: shortest * math.Pow(longest/shortest, rng.Float64()), Until: 1}
		j.PeakMiB = math.Round(min(max(typical*math.Exp(rng.NormFloat64()), least), most))
		if j.Curve = Draw(rng); j.Jump < 0.04 {
			j.Jump = 0.04
		}
		j.Rise, j.Epochs = max(j.Rise, 2*Loading/j.Seconds), false
		j.Limit = 60 * math.Ceil(2*j.Seconds/60)
		if fails, until := rng.Float64() < failing, rng.Float64(); fails {
			j.Until = until
		}
		all = append(all, j)
	}
	return all
}

// Points returns the job's memory use over time as an argument for cuda-process --curve. A jump at the very end of the
// run is omitted: according to Exceeds, the run ends before it.
func (j Job) Points() string {
	var b strings.Builder
	last := -0.01
	add := func(at, mib float64) {
		if at = max(at, last+0.01); at < j.Until*j.Seconds {
			fmt.Fprintf(&b, ",%.2f:%.0f", at, mib)
			last = at
		}
	}
	const jump = 0.05 // seconds
	mib := j.At(Loading/j.Seconds) * j.PeakMiB
	add(0, 0)
	add(Loading, mib)
	for k := 1.0; k*j.Jump < 1+j.Jump-rounding; k++ {
		if at := j.Rise * j.Seconds * min(1, k*j.Jump); at > Loading {
			add(at-jump, mib)
			mib = j.level(k) * j.PeakMiB
			add(at, mib)
		}
	}
	fmt.Fprintf(&b, ",%.2f:%.0f", max(j.Until*j.Seconds, last+0.01), j.Before(j.Until)*j.PeakMiB)
	return b.String()[1:]
}
