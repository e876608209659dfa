package main

import (
	"fmt"
	"slices"

	"caelum/contrib/lab/traces"
	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// source draws workloads.
type source struct {
	pods *traces.Days // nil for a synthetic site
	jobs int          // the number of jobs of the synthetic site
}

// read reads Alibaba's list. An empty path selects the synthetic site.
func read(path string, jobs int) (source, error) {
	pods, err := traces.ReadDays(path, false)
	return source{pods, jobs}, err
}

// draw returns the jobs for a seed, which request the given number of units on average. size returns the number of
// units that a job requests.
func (s source) draw(seed uint64, units float64, size func(trace.Job) float64) (all []trace.Job) {
	if s.pods == nil {
		all = slices.Collect(traces.Site{Jobs: s.jobs, GPUs: 1, Load: 1, Seed: seed}.All())
	} else {
		all = s.pods.Draw(seed)
	}
	traces.Scale(all, units, size)
	return all
}

// estimate returns the time limits that the scheduler knows: those of the synthetic site, or limits that are 1 to 6
// times as long as the run times.
func (s source) estimate(seed uint64) func(trace.Job) float64 {
	if s.pods == nil {
		return ownLimits
	}
	return sim.Limits(1, 6, seed)
}

// units returns a function that returns the number of units that a job requests on a GPU model.
func units(b *mig.Model) func(trace.Job) float64 {
	return func(j trace.Job) float64 {
		name, _ := j.On(b)
		p, _ := b.ProfileIndex(name)
		return float64(b.Profiles[p].Size)
	}
}

// contention returns how jobs on the same GPU slow each other down. With a number u from 0 to 1, each job
// keeps a GPU busy for this share of the time when it is alone on the GPU. With drawn, this share is different for each
// job and uniformly distributed between 0 and 1. If the sum of the shares is above 1, all jobs on the GPU run at the
// inverse of this sum. With xN, all jobs that share a GPU run N times as long, no matter how many they are.
func contention(name string, seed uint64) (func([]trace.Job) float64, error) {
	var number float64
	switch {
	case name == "none":
		return nil, nil
	case name == "drawn":
		return busy(func(j trace.Job) float64 { return sim.Chance(seed+1e6, j).Float64() }), nil
	case scan(name, "x%g", &number) && number >= 1:
		return func(on []trace.Job) float64 {
			if len(on) < 2 {
				return 1
			}
			return 1 / number
		}, nil
	case scan(name, "%g", &number) && number >= 0 && number <= 1:
		return busy(func(trace.Job) float64 { return number }), nil
	}
	return nil, fmt.Errorf("-contention %s: specify none, drawn, a share from 0 to 1, or a factor such as x1.5", name)
}

func scan(text, format string, number *float64) bool {
	n, err := fmt.Sscanf(text, format, number)
	return err == nil && n == 1
}

func busy(share func(trace.Job) float64) func([]trace.Job) float64 {
	return func(on []trace.Job) float64 {
		sum := 0.0
		for _, j := range on {
			sum += share(j)
		}
		return 1 / max(sum, 1)
	}
}
