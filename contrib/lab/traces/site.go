package traces

import (
	"iter"
	"math"
	"math/rand/v2"
	"strconv"

	"caelum/internal/sim/trace"
)

// Site is a synthetic workload that resembles the workload of a real site. Like the tasks of a job array, jobs arrive
// in bursts and have the same profile within a burst. Their durations span four orders of magnitude. Time limits take
// only a few round values, and two out of seven jobs have no time limit.
type Site struct {
	Jobs int
	GPUs int     // the number of GPUs, with 8 units each, that Load refers to
	Load float64 // the average fraction of all units that is requested; one long job changes it by a few percent
	Seed uint64
}

const (
	siteMedian = 2400.0 // median duration in seconds
	siteSpread = 1.5    // standard deviation of the logarithm of the durations
	siteBurst  = 8.0    // mean number of further jobs in a burst
	siteFree   = 2. / 7 // fraction of jobs without a time limit
)

// siteLimits lists the time limits that users choose, in seconds. No job runs for longer than the largest of these
// limits.
var siteLimits = [...]float64{3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400}

// All returns the generated jobs. The same seed always yields the same jobs.
func (s Site) All() iter.Seq[trace.Job] {
	return func(yield func(trace.Job) bool) {
		rng := rand.New(rand.NewPCG(s.Seed, 99))
		mix := trace.Mix{.3, .1, .2, .2, .05, .15}
		units := 0.0
		for p, w := range mix {
			units += w * trace.ChurnUnits[p]
		}
		// gap is the mean time between jobs, in seconds.
		gap := units * siteMedian * math.Exp(siteSpread*siteSpread/2) / (s.Load * float64(s.GPUs) * 8)
		at, left, profile := 0.0, 0, ""
		for k := range s.Jobs {
			if left == 0 {
				left = 1 + int(siteBurst*rng.ExpFloat64())
				at += gap * float64(left) * rng.ExpFloat64()
				profile = trace.ChurnProfiles[mix.Pick(rng.Float64())]
			}
			left--
			j := trace.Job{ID: strconv.Itoa(k + 1), Submit: at, Profile: profile}
			last := siteLimits[len(siteLimits)-1]
			j.Duration = min(last, siteMedian*math.Exp(siteSpread*rng.NormFloat64()))
			chosen := rng.IntN(len(siteLimits))
			for chosen < len(siteLimits)-1 && siteLimits[chosen] < j.Duration {
				chosen++
			}
			if rng.Float64() >= siteFree {
				j.Limit = siteLimits[chosen]
			}
			if !yield(j) {
				return
			}
		}
	}
}
