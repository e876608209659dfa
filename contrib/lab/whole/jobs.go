package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"caelum/contrib/lab/traces"
	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// A workload based on Alibaba's list consists of whole days, drawn from the list at random with replacement. Each day
// keeps its sequence of jobs and the times between them. All submission times are then multiplied by the same factor,
// so that the workload has exactly the requested load. firstDay and days select the days on which the list is dense:
// 7,038 of its 7,051 pods were created on these days.
const (
	firstDay = 18
	days     = 34
	day      = 86400.0 // seconds
)

// longest limits a job's duration, in seconds. A common time limit on Slurm clusters is one day, whereas Alibaba's list
// includes services that run for up to 52 days. Only 0.8% of the pods run for more than a day.
const longest = day

// source draws workloads.
type source struct {
	pods [][]trace.Job // by day; nil for synthetic jobs
	jobs int           // the number of synthetic jobs
}

// read reads Alibaba's list. An empty path selects synthetic jobs.
func read(path string, jobs int) (source, error) {
	s := source{jobs: jobs}
	if path == "" {
		return s, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	w, err := traces.Alibaba(path, f, true)
	if err != nil {
		return s, err
	}
	s.pods = make([][]trace.Job, days)
	for _, j := range w.Jobs {
		if d := int(j.Submit/day) - firstDay; d >= 0 && d < days {
			j.Submit -= day * float64(firstDay+d)
			j.Duration = min(j.Duration, longest)
			s.pods[d] = append(s.pods[d], j)
		}
	}
	return s, nil
}

// draw returns the jobs for a seed, sorted by submission time. The load is the mean fraction of all units that the jobs
// request between the first and the last submission.
func (s source) draw(c cluster, load float64, seed uint64) []trace.Job {
	if s.pods == nil {
		return s.churn(c, load, seed)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []trace.Job
	for d := range days {
		for _, j := range s.pods[rng.IntN(days)] {
			j.ID = fmt.Sprintf("%d-%s", d, j.ID)
			j.Submit += day * float64(d)
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(a, b trace.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	work := 0.0
	for _, j := range all {
		work += c.units(j) * j.Duration
	}
	first, last := all[0].Submit, all[len(all)-1].Submit
	factor := work / (load * float64(c.nodes*perNode*c.model.Grid)) / (last - first)
	for k := range all {
		all[k].Submit = (all[k].Submit - first) * factor
	}
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
