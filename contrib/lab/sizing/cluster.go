package main

import (
	"fmt"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// cluster describes the queue and the GPUs, which are all of the same model.
type cluster struct {
	model *mig.Model
	gpus  int
	queue string // fifo, easy, or offers (EASY through offers, as in production)
	// estimate and speeds are the values for the Estimate and Speeds fields of sim.Config.
	estimate func(trace.Job) float64
	speeds   func(j trace.Job, profile string) float64
	// If ran is not nil, it is called with each job's slice.
	ran func(sim.Span)
}

// perNode is the number of GPUs on a node.
const perNode = 4

func newCluster(model string, gpus int, queue string) (c cluster, err error) {
	b, err := mig.ModelByName(model)
	if err != nil {
		return c, err
	}
	return cluster{model: b.Select(mig.Plain), gpus: gpus, queue: queue}, nil
}

// way identifies a way to use the GPUs.
type way string

const (
	whole    way = "whole GPUs"
	static   way = "best fixed layouts" // the layouts for which the simulated jobs have the shortest mean turnaround
	tightest way = "tightest"
	adaptive way = "adaptive"
)

// config returns the configuration of a simulation, except for the layouts that the static way needs.
func (c cluster) config(as way) (sim.Config, error) {
	s := sim.Config{GPUs: slices.Repeat([]*mig.Model{c.model}, c.gpus), Estimate: c.estimate, Speeds: c.speeds}
	switch c.queue {
	case "fifo":
	case "easy", "offers":
		s.Discipline = sim.EASY
	default:
		return s, fmt.Errorf("unknown queue %s", c.queue)
	}
	switch as {
	case whole:
		layout, ok := sim.OneInstance(c.model)
		if !ok {
			return s, fmt.Errorf("%s has no profile for a whole GPU", c.model.Name)
		}
		s.Static = slices.Repeat([]mig.Layout{layout}, c.gpus)
	case tightest, adaptive:
		s.Policy = place.Lifetime{}
		if c.queue == "offers" {
			s.Offers, s.Nodes = true, slices.Repeat([]int{perNode}, c.gpus/perNode)
		}
	}
	if as == adaptive {
		s.Sizing = sim.Adaptive
	}
	return s, nil
}

// play simulates the jobs and returns their turnarounds, in seconds, in the order of submission.
func (c cluster) play(as way, jobs []trace.Job) ([]float64, error) {
	s, err := c.config(as)
	if err != nil {
		return nil, err
	}
	if as == static {
		shorter := func(a, b *sim.Result) bool { return a.MeanTurnaround() < b.MeanTurnaround() }
		p, err := sim.BestStatic(s, jobs, shorter, nil)
		if err != nil {
			return nil, err
		}
		s.Static = p.Deal(c.gpus)
	}
	o := &observer{ends: map[string]float64{}, ran: c.ran}
	s.Observer = o
	r, err := sim.Run(s, slices.Values(jobs))
	if err != nil {
		return nil, err
	}
	var all []float64
	for _, j := range jobs {
		all = append(all, o.ends[j.ID]-j.Submit)
	}
	if m := mean(all); math.Abs(m-r.MeanTurnaround()) > 1e-6*m {
		return nil, fmt.Errorf("mean turnaround: observed %v s, but the result is %v s", m, r.MeanTurnaround())
	}
	return all, nil
}

// observer records when each job ends. Each job has one slice.
type observer struct {
	ends map[string]float64 // by ID
	ran  func(sim.Span)
}

// Passed implements [sim.Observer].
func (o *observer) Passed(from, to float64, busy, waiting int, frag float64) {}

// Waited implements [sim.Observer].
func (o *observer) Waited(job string, wait float64) {}

// Ran implements [sim.Observer].
func (o *observer) Ran(s sim.Span) {
	o.ends[s.Job] = s.To
	if o.ran != nil {
		o.ran(s)
	}
}

// slowest returns a copy of the jobs in which each job requests the smallest profile that respects a limit on the
// slowdown. If the limit is 0, the requested profile is determined by the memory alone.
func slowest(jobs []trace.Job, maxSlowdown float64) []trace.Job {
	all := slices.Clone(jobs)
	for k := range all {
		all[k].Slowest = 0
		if maxSlowdown > 0 {
			all[k].Slowest = 1 / maxSlowdown
		}
	}
	return all
}
