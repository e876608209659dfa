package traces

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"caelum/internal/sim/trace"
)

// Days draws workloads from Alibaba's list. Each workload consists of whole days, drawn from the list at random with
// replacement. Each day keeps its sequence of jobs and the times between them.
type Days [listDays][]trace.Job

// firstDay and listDays select the days on which the list is dense: 7,038 of its 7,051 pods were created on these days.
const (
	firstDay = 18
	listDays = 34
	day      = 86400.0 // seconds
)

// longest limits a job's duration, in seconds. A common time limit on Slurm clusters is one day, whereas Alibaba's list
// includes services that run for up to 52 days. Only 0.8% of the pods run for more than a day.
const longest = day

// ReadDays reads the list at path, or returns nil if path is empty. multiGPU has the same meaning as for [Alibaba].
func ReadDays(path string, multiGPU bool) (*Days, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := Alibaba(path, f, multiGPU)
	if err != nil {
		return nil, err
	}
	var all Days
	for _, j := range w.Jobs {
		if d := int(j.Submit/day) - firstDay; d >= 0 && d < listDays {
			j.Submit -= day * float64(firstDay+d)
			j.Duration = min(j.Duration, longest)
			all[d] = append(all[d], j)
		}
	}
	return &all, nil
}

// Draw returns the jobs for a seed, sorted by submission time. They keep the load of the list.
func (d *Days) Draw(seed uint64) (all []trace.Job) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for k := range listDays {
		for _, j := range d[rng.IntN(listDays)] {
			j.ID = fmt.Sprintf("%d-%s", k, j.ID)
			j.Submit += day * float64(k)
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(a, b trace.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return all
}

// Scale multiplies all submission times by the same factor, so that the jobs request exactly the given number of units
// on average between the first and the last submission. size returns the number of units that a job requests.
func Scale(jobs []trace.Job, units float64, size func(trace.Job) float64) {
	work := 0.0
	for _, j := range jobs {
		work += size(j) * j.Duration
	}
	first, last := jobs[0].Submit, jobs[len(jobs)-1].Submit
	factor := work / units / (last - first)
	for k := range jobs {
		jobs[k].Submit = (jobs[k].Submit - first) * factor
	}
}
