package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// drawing describes a set of random jobs.
type drawing struct {
	model   *mig.Model
	jobs    int
	gap     float64 // mean time between submissions, in seconds
	mean    float64 // mean run time on a whole GPU, in seconds; the distribution is exponential
	uniform bool    // busy shares are uniform; otherwise, they have the density 4 b^3 (core/predict/compute.go)
}

// draw returns the jobs generated from a seed. Each job needs all of the memory of a randomly chosen profile.
func (d drawing) draw(seed uint64) (all []trace.Job) {
	rng := rand.New(rand.NewPCG(seed, 7))
	at := 0.0
	for k := range d.jobs {
		busy := rng.Float64()
		if !d.uniform {
			busy = math.Pow(busy, 0.25)
		}
		memory := d.model.Profiles[rng.IntN(len(d.model.Profiles))].Memory()
		all = append(all, trace.Job{
			ID: fmt.Sprint(k), Submit: at, Duration: d.mean * rng.ExpFloat64(), Speed: speedsOf(d.model, busy, memory),
		})
		at += d.gap * rng.ExpFloat64()
	}
	return all
}

// speedsOf returns a job's speeds on all profiles with enough memory (Amdahl's law). The argument memory is in MiB.
func speedsOf(b *mig.Model, busy, memory float64) map[string]float64 {
	all := map[string]float64{}
	for _, p := range b.Profiles {
		if p.Memory() >= memory {
			all[p.Name] = 1 / predict.Slowdown(busy, p.Compute, b.Compute())
		}
	}
	return all
}

const (
	// timeError is the standard deviation of the error in the logarithm of an observed run time.
	timeError = 0.3
	// longestLimit is the largest ratio of a job's time limit to its run time. The smallest ratio is 1.
	longestLimit = 6
	// unlimited is the fraction of jobs without a time limit.
	unlimited = 0.3
)

// wrong returns a cluster whose planner uses estimated speeds and run times. internal/core/predict estimates the speeds
// from two runs with inexact run times. The time limits serve as estimated run times.
func (c cluster) wrong(seed uint64) cluster {
	random := func(j trace.Job, stream uint64) *rand.Rand {
		return rand.New(rand.NewPCG(seed, stream<<32+math.Float64bits(j.Submit)))
	}
	limit := sim.Limits(1, longestLimit, seed)
	c.estimate = func(j trace.Job) float64 {
		if random(j, 1).Float64() < unlimited {
			return math.Inf(1)
		}
		return limit(j)
	}
	c.speeds = func(j trace.Job, profile string) float64 {
		return estimate(c.model, observed(c.model, j, random(j, 2)), profile)
	}
	return c
}

// observed returns two runs of a job with inexact run times: one on the smallest profile, and one on a whole GPU.
func observed(b *mig.Model, j trace.Job, rng *rand.Rand) (runs []predict.Run) {
	least := ""
	for _, p := range b.Profiles {
		if k, ok := b.ProfileIndex(least); j.SpeedOn(p.Name) > 0 && (!ok || p.Compute < b.Profiles[k].Compute) {
			least = p.Name
		}
	}
	for k, profile := range []string{least, b.Profiles[wholeIndex(b)].Name} {
		seconds := j.Takes(profile) * math.Exp(timeError*rng.NormFloat64())
		runs = append(runs, runOf(b, uint32(k+1), profile, seconds))
	}
	return runs
}

// wholeIndex returns the index of the profile that occupies a whole GPU.
func wholeIndex(b *mig.Model) int {
	largest := 0
	for k, p := range b.Profiles {
		if p.Size > b.Profiles[largest].Size {
			largest = k
		}
	}
	return largest
}

// runOf returns a complete run for which no utilisation was measured, as on an A100.
func runOf(b *mig.Model, job uint32, profile string, seconds float64) predict.Run {
	return predict.Run{
		Job: job, GPUType: b.Type, Profile: profile, Slices: 1, Seconds: seconds, State: "COMPLETED",
		Samples: 1, PeakMiB: 1, MedianMiB: 1, Util: -1,
	}
}

// estimate returns the speed on a profile, relative to a whole GPU, that internal/core/predict estimates from earlier
// runs. If the runs do not show the busy share, max_slowdown does not apply (predict.Need), so the returned speed
// always satisfies it.
func estimate(b *mig.Model, runs []predict.Run, profile string) float64 {
	compute, _ := mig.Claims(profile)
	need, _ := predict.Predict(predict.History{Runs: runs}, predict.DefaultSite)
	speed := 1 / predict.Slowdown(need.Busy, compute, b.Compute())
	if !need.BusyKnown {
		const above = 1 + 1e-9 // because of rounding
		return max(speed, above/maxSlowdown)
	}
	return speed
}
