package main

import (
	"slices"

	"caelum/contrib/lab/traces"
	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// source draws workloads.
type source struct {
	pods *traces.Days // nil for synthetic jobs
	jobs int          // the number of synthetic jobs
}

// read reads Alibaba's list. An empty path selects synthetic jobs.
func read(path string, jobs int) (source, error) {
	pods, err := traces.ReadDays(path, true)
	return source{pods, jobs}, err
}

// draw returns the jobs for a seed, sorted by submission time. The load is the mean fraction of all units that the jobs
// request between the first and the last submission.
func (s source) draw(c cluster, load float64, seed uint64) []trace.Job {
	if s.pods == nil {
		return s.churn(c, load, seed)
	}
	all := s.pods.Draw(seed)
	traces.Scale(all, load*float64(c.nodes*perNode*c.model.Grid), c.units)
	return all
}

// multiGPU is the fraction of the synthetic jobs that need several GPUs.
const multiGPU = 0.15

// churn returns synthetic jobs. Jobs with a single slice need the same fraction of a GPU as on an A100-40GB.
func (s source) churn(c cluster, load float64, seed uint64) []trace.Job {
	a100, err := mig.ModelByName("A100-40GB")
	if err != nil {
		panic(err)
	}
	all := slices.Collect(trace.Churn{
		Mix:      trace.Mixes[0].Mix,
		Jobs:     s.jobs,
		GPUs:     c.nodes * perNode,
		Load:     load,
		MultiGPU: multiGPU,
		Seed:     seed,
	}.All())
	for k := range all {
		if j := &all[k]; j.Profile != mig.Full {
			p, _ := a100.ProfileIndex(j.Profile)
			j.Compute = float64(a100.Profiles[p].Compute) / float64(a100.Compute())
			j.Memory = float64(a100.Profiles[p].Size) / float64(a100.Grid)
			j.Profile = ""
		}
	}
	return all
}

// several reports whether a job needs several GPUs.
func several(j trace.Job) bool { return j.Profile == mig.Full }
