package trace

import (
	"iter"
	"math/rand/v2"
	"strconv"

	"caelum/internal/core/mig"
)

// Mix is the relative frequency of each of [ChurnProfiles], in arbitrary units.
type Mix [6]float64

// ChurnProfiles lists the profiles of an A100-40GB, and ChurnUnits lists their sizes in units.
var (
	ChurnProfiles = [6]string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	ChurnUnits    = [6]float64{1, 2, 2, 4, 4, 8}
)

// Mixes are the four mixes used to compare policies.
var Mixes = []struct {
	Name string
	Mix  Mix
}{
	{"uniform6", Mix{1, 1, 1, 1, 1, 1}},
	{"skew-small", Mix{.4, .1, .25, .1, .1, .05}},
	{"bimodal", Mix{.3, .1, .1, .1, .1, .3}},
	{"four-equal", Mix{1, 0, 1, 1, 1, 0}},
}

// Churn is a synthetic workload. Jobs arrive as a Poisson process, their profiles are drawn according to a mix, and
// their durations are exponentially distributed.
type Churn struct {
	Mix          Mix
	Jobs         int
	GPUs         int     // the number of GPUs, with 8 units each, to which Load refers
	Load         float64 // the mean fraction of all units that is requested
	MeanDuration float64 // seconds; 0 means one hour
	MultiGPU     float64 // the fraction of jobs that need 2, 4 or 8 full GPUs (churnGPUs, mig.Full) on one node
	PerNode      int     // the number of GPUs on a node, which limits the number of GPUs that a job needs; 0 means 8
	Seed         uint64
}

// churnGPUs lists the numbers of GPUs that multi-GPU jobs need. All of them are equally frequent.
var churnGPUs = [3]int{2, 4, 8}

// All returns the generated jobs. The same seed always yields the same jobs.
func (c Churn) All() iter.Seq[Job] {
	return func(yield func(Job) bool) {
		rng := rand.New(rand.NewPCG(c.Seed, 0))
		mean := c.MeanDuration
		if mean == 0 {
			mean = 3600
		}
		sum, units := 0.0, 0.0
		for i, w := range c.Mix {
			sum += w
			units += w * ChurnUnits[i]
		}
		units /= sum
		several := churnGPUs[:]
		for c.PerNode > 0 && several[len(several)-1] > max(c.PerNode, churnGPUs[0]) {
			several = several[:len(several)-1]
		}
		if c.MultiGPU > 0 {
			units *= 1 - c.MultiGPU
			for _, n := range several {
				units += c.MultiGPU * float64(8*n) / float64(len(several))
			}
		}
		rate := c.Load * float64(c.GPUs) * 8 / units / mean
		at := 0.0
		for k := range c.Jobs {
			at += rng.ExpFloat64() / rate
			j := Job{ID: strconv.Itoa(k + 1), Submit: at, Profile: ChurnProfiles[c.Mix.Pick(rng.Float64()*sum)]}
			j.Duration = mean * rng.ExpFloat64()
			if c.MultiGPU > 0 && rng.Float64() < c.MultiGPU {
				j.Profile, j.Slices = mig.Full, several[rng.IntN(len(several))]
			}
			if !yield(j) {
				return
			}
		}
	}
}

// Pick returns the profile at position x in the cumulative distribution of the mix.
func (m Mix) Pick(x float64) int {
	last := 0
	for p, w := range m {
		if w == 0 {
			continue
		}
		if last = p; x < w {
			break
		}
		x -= w
	}
	return last
}
