package main

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// perNode is the number of GPUs on a node.
const perNode = 8

// memoryMiB is the memory of a full H100-80GB.
const memoryMiB = 81559

// cluster describes the nodes and the scheduler.
type cluster struct {
	model  *mig.Model // with the mig.Full profile
	nodes  int
	queue  string // fifo, easy, or offers (EASY through offers, as in production)
	ends   string // exact, or limits (time limits, 1 to 6 times the run time)
	policy place.Policy
	// create, destroy and change are the times, in seconds, that it takes to create an instance, to destroy an
	// instance, and to switch a GPU's MIG mode.
	create, destroy, change float64
	share                   float64 // whole_share
}

// units returns the number of units that a job needs.
func (c cluster) units(j trace.Job) float64 {
	name, _ := j.On(c.model)
	p, _ := c.model.ProfileIndex(name)
	return float64(c.model.Profiles[p].Size * max(j.Slices, 1))
}

// config returns the configuration for the given number of nodes with GPUs of this model.
func (c cluster) config(model *mig.Model, nodes int, seed uint64) sim.Config {
	s := sim.Config{
		GPUs:    slices.Repeat([]*mig.Model{model}, nodes*perNode),
		Nodes:   slices.Repeat([]int{perNode}, nodes),
		Policy:  c.policy,
		Create:  c.create,
		Destroy: c.destroy,
		Switch:  c.change,

		WholeShare: c.share,
	}
	if c.queue != "fifo" {
		s.Discipline = sim.EASY
	}
	s.Offers = c.queue == "offers"
	if c.ends == "limits" {
		s.Estimate = sim.Limits(1, 6, seed)
	}
	return s
}

// outcome holds the waits of one or more simulations, in seconds.
type outcome struct {
	multi, slices waits
	switched      int
}

// waits holds the waits of one class of jobs.
type waits struct {
	jobs         int
	sum, longest float64
}

func (w *waits) add(o waits) {
	w.jobs, w.sum, w.longest = w.jobs+o.jobs, w.sum+o.sum, max(w.longest, o.longest)
}

func (w waits) mean() float64 { return w.sum / float64(max(w.jobs, 1)) }

func (o *outcome) add(p outcome) {
	o.multi.add(p.multi)
	o.slices.add(p.slices)
	o.switched += p.switched
}

// mean returns the mean wait of all jobs.
func (o outcome) mean() float64 {
	return (o.multi.sum + o.slices.sum) / float64(max(o.multi.jobs+o.slices.jobs, 1))
}

// observer collects the waits by class.
type observer struct {
	several map[string]bool // by job ID
	outcome outcome
}

// Passed implements [sim.Observer].
func (o *observer) Passed(from, to float64, busy, waiting int, frag float64) {}

// Ran implements [sim.Observer].
func (o *observer) Ran(s sim.Span) {}

// Waited implements [sim.Observer].
func (o *observer) Waited(job string, wait float64) {
	class := &o.outcome.slices
	if o.several[job] {
		class = &o.outcome.multi
	}
	class.add(waits{1, wait, wait})
}

// run simulates the jobs. If there are no jobs, the outcome is empty.
func run(s sim.Config, jobs []trace.Job) (outcome, error) {
	if len(jobs) == 0 {
		return outcome{}, nil
	}
	o := &observer{several: map[string]bool{}}
	for _, j := range jobs {
		o.several[j.ID] = several(j)
	}
	s.Observer = o
	r, err := sim.Run(s, slices.Values(jobs))
	if err != nil {
		return outcome{}, err
	}
	if n := o.outcome.multi.jobs + o.outcome.slices.jobs; n != len(jobs) {
		return outcome{}, fmt.Errorf("%d of %d jobs started", n, len(jobs))
	}
	o.outcome.switched = r.Switched
	return o.outcome, nil
}

// shared simulates shared nodes.
func (c cluster) shared(jobs []trace.Job, seed uint64) (outcome, error) {
	return run(c.config(c.model, c.nodes, seed), jobs)
}

// split simulates two partitions. The jobs that need several GPUs run on the first nodes, whose GPUs are always full.
// In their partition, slurmctld schedules the GPUs itself, so there are no offers.
func (c cluster) split(jobs []trace.Job, first int, seed uint64) (outcome, error) {
	var multi, other []trace.Job
	for _, j := range jobs {
		if several(j) {
			multi = append(multi, j)
		} else {
			other = append(other, j)
		}
	}
	whole := c.config(c.model.Select(func(p mig.Profile) bool { return p.Name == mig.Full }), first, seed)
	whole.Create, whole.Destroy, whole.Switch, whole.Offers = 0, 0, 0, false
	o, err := run(whole, multi)
	if err != nil {
		return o, err
	}
	cut := c.model.Select(func(p mig.Profile) bool { return p.Name != mig.Full })
	p, err := run(c.config(cut, c.nodes-first, seed), other)
	o.switched = 0
	o.add(p)
	return o, err
}

// bestSplit returns the number of nodes with full GPUs that minimizes the mean wait over all jobs and tuning seeds. To
// save time, the search simulates EASY without offers even if the cluster uses offers.
func (o options) bestSplit(c cluster, load float64) (best int, err error) {
	if c.queue == "offers" {
		c.queue = "easy"
	}
	all, err := parallel(o.workers, len(o.splits)*len(o.tune), func(k int) (outcome, error) {
		seed := o.tune[k%len(o.tune)]
		return c.split(o.draw(c, load, seed), int(o.splits[k/len(o.tune)]), seed)
	})
	least := math.Inf(1)
	for k, n := range o.splits {
		if m := total(all[k*len(o.tune) : (k+1)*len(o.tune)]).mean(); m < least {
			best, least = int(n), m
		}
	}
	return best, err
}

func total(all []outcome) (sum outcome) {
	for _, o := range all {
		sum.add(o)
	}
	return sum
}

// parallel calls the function do for each number from 0 to n-1 and returns the results in order.
func parallel[T any](workers, n int, do func(k int) (T, error)) ([]T, error) {
	all, failed := make([]T, n), make([]error, n)
	next := make(chan int)
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for k := range next {
				all[k], failed[k] = do(k)
			}
		})
	}
	for k := range n {
		next <- k
	}
	close(next)
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
