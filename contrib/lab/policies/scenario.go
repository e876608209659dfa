package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"caelum/contrib/lab/ends"
	"caelum/contrib/lab/traces"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// scenario describes a workload and the scheduler that runs it.
type scenario struct {
	queue     string
	ends      string
	unlimited float64 // fraction of the jobs without a time limit
	load      float64
	gpus      string
	mix       string // a name in trace.Mixes, or siteMix
}

var (
	queueNames = []string{"fifo", "easy", "offers"}
	endNames   = []string{"exact", "limits", "learned"}
)

// siteMix selects the traces.Site workload on 24 GPUs. This workload has its own limits and load.
const siteMix = "site"

const (
	gpuCount  = 16
	siteCount = 24
	perNode   = 4
)

func model(name string) (*mig.Model, error) {
	b, err := mig.ModelByName(name)
	if err != nil {
		return nil, err
	}
	return b.Select(mig.Plain), nil
}

// run simulates the scenario with one policy.
func (s scenario) run(policy string, seed uint64, n int) (*sim.Result, error) {
	a100, err := model("A100-40GB")
	if err != nil {
		return nil, err
	}
	h100, err := model("H100-80GB")
	if err != nil {
		return nil, err
	}
	c := sim.Config{}
	if c.Policy, err = place.ByName(policy); err != nil {
		return nil, err
	}
	jobs, err := s.jobs(a100, seed, n)
	if err != nil {
		return nil, err
	}
	count := gpuCount
	if s.mix == siteMix {
		count = siteCount
	}
	c.GPUs = slices.Repeat([]*mig.Model{a100}, count)
	switch s.gpus {
	case "alike":
	case "mixed":
		for k := count / 2; k < count; k++ {
			c.GPUs[k] = h100
		}
	default:
		return nil, fmt.Errorf("-gpus %s: use alike or mixed", s.gpus)
	}
	switch s.queue {
	case "fifo":
	case "easy":
		c.Discipline = sim.EASY
	case "offers":
		c.Discipline, c.Offers, c.Nodes = sim.EASY, true, slices.Repeat([]int{perNode}, count/perNode)
	default:
		return nil, fmt.Errorf("-queues %s: use one of %v", s.queue, queueNames)
	}
	if s.ends == "learned" {
		c.Corrector = ends.New
	}
	if c.Estimate, err = s.estimate(seed); err != nil {
		return nil, err
	}
	return sim.Run(c, slices.Values(jobs))
}

// estimate returns a function that returns the run time, in seconds, that the scheduler expects a job to have.
func (s scenario) estimate(seed uint64) (func(trace.Job) float64, error) {
	var estimate func(trace.Job) float64
	switch s.ends {
	case "exact":
		estimate = func(j trace.Job) float64 { return j.Duration }
	case "limits", "learned":
		estimate = sim.Limits(1, 6, seed)
	case "own":
		estimate = func(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }
	default:
		return nil, fmt.Errorf("-ends %s: use one of %v", s.ends, endNames)
	}
	return func(j trace.Job) float64 {
		if k, _ := strconv.ParseUint(j.ID, 10, 64); rand.New(rand.NewPCG(seed, k)).Float64() < s.unlimited {
			return math.Inf(1)
		}
		return estimate(j)
	}, nil
}

// jobs generates the workload. If there are two GPU models, a job needs the same fraction of a GPU on both.
func (s scenario) jobs(a100 *mig.Model, seed uint64, n int) (jobs []trace.Job, err error) {
	if s.mix == siteMix {
		jobs = slices.Collect(traces.Site{Jobs: n, GPUs: siteCount, Load: s.load, Seed: seed}.All())
	}
	for _, m := range trace.Mixes {
		if m.Name == s.mix {
			jobs = slices.Collect(trace.Churn{Mix: m.Mix, Jobs: n, GPUs: gpuCount, Load: s.load, Seed: seed}.All())
		}
	}
	if jobs == nil {
		return nil, fmt.Errorf("-mixes %s: use site or one of the mixes that caelum simulate --churn accepts", s.mix)
	}
	if s.gpus != "mixed" {
		return jobs, nil
	}
	for k := range jobs {
		j := &jobs[k]
		p, _ := a100.ProfileIndex(j.Profile)
		j.Compute = float64(a100.Profiles[p].Compute) / float64(a100.Compute())
		j.Memory = float64(a100.Profiles[p].Size) / float64(a100.Grid)
		j.Profile = ""
	}
	return jobs, nil
}
