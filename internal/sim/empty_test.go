package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// ownLimit returns the job's own time limit, or +Inf if the job has no limit.
func ownLimit(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// TestNoJobWaitsBesideAnEmptyGPU checks that a job starts on an empty GPU, even if another slot would have a lower cost
// in six hours. Ten jobs, most of them without a time limit, leave one of ten GPUs empty. The eleventh job needs a
// 3g.20gb, and no other job waits.
func TestNoJobWaitsBesideAnEmptyGPU(t *testing.T) {
	const long = 1e5
	jobs := []trace.Job{
		{ID: "4g", Duration: long, Profile: "4g.20gb"},
		{ID: "3g", Submit: 5, Duration: 21600, Limit: 21600, Profile: "3g.20gb"},
	}
	for k := range 8 {
		jobs = append(
			jobs,
			trace.Job{ID: fmt.Sprint("7g-", k), Submit: 10 + float64(k), Duration: long, Profile: "7g.40gb"},
		)
	}
	last := trace.Job{ID: "last", Submit: 60, Duration: long, Profile: "3g.20gb"}
	for _, name := range []string{"reach", place.DefaultPolicy} {
		for _, c := range []Config{
			{Discipline: FIFO}, {Discipline: EASY}, {Discipline: FIFO, Offers: true}, {Discipline: EASY, Offers: true},
		} {
			c.GPUs, c.Policy, c.Estimate = gpus(t, "A100-40GB", 10), policy(t, name), ownLimit
			var seen spans
			c.Observer = &seen
			if _, err := Run(c, slices.Values(append(jobs, last))); err != nil {
				t.Fatal(err)
			}
			for _, s := range seen.all {
				if s.Job == last.ID && s.From > last.Submit+1 {
					t.Errorf("%s, discipline %d, offers %v: the job starts after %v s",
						name, c.Discipline, c.Offers, s.From-last.Submit)
				}
			}
		}
	}
}
