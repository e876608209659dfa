package trace

import (
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
)

// Site is a synthetic workload like a site's own: jobs come in bursts of the same profile, as job arrays do, their
// durations spread over four orders of magnitude, their limits are one of a few round ones, and two of seven jobs have
// no limit.
type Site struct {
	Jobs int
	GPUs int     // that the load is for, 8 units each
	Load float64 // the share of all units that is asked for on average; one long job moves it by some percent
	Seed uint64
}

const (
	siteMedian = 2400.0 // of the durations, in seconds
	siteSpread = 1.5    // the standard deviation of their logarithms
	siteBurst  = 8.0    // the mean number of jobs in a burst, beyond the first
	siteFree   = 2. / 7 // the share of the jobs that have no limit
)

// siteLimits are the limits that users choose from, in seconds; no job runs for longer than the last.
var siteLimits = [...]float64{3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400}

// All makes the jobs, the same ones for the same seed.
func (s Site) All() iter.Seq[Job] {
	return func(yield func(Job) bool) {
		rng := rand.New(rand.NewPCG(s.Seed, 99))
		mix := Mix{.3, .1, .2, .2, .05, .15}
		units := 0.0
		for p, w := range mix {
			units += w * churnUnits[p]
		}
		gap := units * siteMedian * math.Exp(siteSpread*siteSpread/2) / (s.Load * float64(s.GPUs) * 8) // seconds a job
		at, left, profile := 0.0, 0, ""
		for k := range s.Jobs {
			if left == 0 {
				left = 1 + int(siteBurst*rng.ExpFloat64())
				at += gap * float64(left) * rng.ExpFloat64()
				profile = ChurnProfiles[mix.pick(rng.Float64())]
			}
			left--
			j := Job{ID: strconv.Itoa(k + 1), Submit: at, Profile: profile}
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
