package sim

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"testing"

	"caelum/internal/place"
	"caelum/internal/trace"
)

// ownLimit returns the job's own time limit, or +Inf if the job has no limit.
func ownLimit(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// unlimited returns a function that returns +Inf for a share of the jobs, and otherwise a random limit of 1 to 6 times
// the run time.
func unlimited(share float64, seed uint64) func(trace.Job) float64 {
	limit := Limits(1, 6, seed)
	return func(j trace.Job) float64 {
		if chance(seed+1, j).Float64() < share {
			return math.Inf(1)
		}
		return limit(j)
	}
}

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
	for _, name := range []string{"qla", place.DefaultPolicy} {
		for _, c := range []Config{
			{Discipline: FIFO}, {Discipline: EASY}, {Discipline: FIFO, Offers: true}, {Discipline: EASY, Offers: true},
		} {
			c.GPUs, c.Policy, c.Said = gpus(t, "A100-40GB", 10), policy(t, name), ownLimit
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

// TestHoldsPay checks that holds do not increase the waits if many jobs have no time limit. It simulates churn, and a
// site whose GPUs are busy a third of the time, where waits are rare and occur in bursts, so that only the mean over
// many seeds is conclusive.
//
// With offers, the simulation takes twenty times as long, so this case uses HOLD_SEEDS seeds, by default 10, with means
// of 84 s (best-fit), 79 s (lifetime) and 87 s (qla). With -short, the test simulates only churn without offers.
func TestHoldsPay(t *testing.T) {
	site := func(seed uint64) (iter.Seq[trace.Job], func(trace.Job) float64) {
		return trace.Site{Jobs: 1000, GPUs: 24, Load: 0.32, Seed: seed}.All(), ownLimit
	}
	churn := func(seed uint64) (iter.Seq[trace.Job], func(trace.Job) float64) {
		c := trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 600, GPUs: 8, Load: 0.7, Seed: seed}
		return c.All(), unlimited(0.3, seed)
	}
	offerSeeds := uint64(10)
	fmt.Sscan(os.Getenv("HOLD_SEEDS"), &offerSeeds)
	for _, w := range []struct {
		name  string
		c     Config
		seeds uint64
		jobs  func(seed uint64) (iter.Seq[trace.Job], func(trace.Job) float64)
	}{
		{"site, FIFO", Config{GPUs: gpus(t, "A100-40GB", 24)}, 40, site},
		{"site, offers", Config{GPUs: gpus(t, "A100-40GB", 24), Discipline: EASY, Offers: true}, offerSeeds, site},
		{"churn, FIFO", Config{GPUs: gpus(t, "A100-40GB", 8)}, 10, churn},
		{"churn, offers", Config{GPUs: gpus(t, "A100-40GB", 8), Discipline: EASY, Offers: true}, 5, churn},
	} {
		if testing.Short() && w.name != "churn, FIFO" {
			continue
		}
		waits := func(name string) (mean, longest float64) {
			for seed := uint64(1); seed <= w.seeds; seed++ {
				c := w.c
				jobs, estimate := w.jobs(seed)
				c.Policy, c.Said = policy(t, name), estimate
				r, err := Run(c, jobs)
				if err != nil {
					t.Fatal(err)
				}
				mean += r.Waits.Mean() / float64(w.seeds)
				longest += r.Waits.Longest / float64(w.seeds)
			}
			return mean, longest
		}
		mean, longest := waits("best-fit")
		for _, name := range []string{"lifetime", "qla"} {
			m, l := waits(name)
			t.Logf("%s: best-fit %.1f s, longest %.0f; %s %.1f s, %.0f", w.name, mean, longest, name, m, l)
			if m > 1.05*mean || l > 1.2*longest {
				t.Errorf("%s: %s makes jobs wait longer than best-fit", w.name, name)
			}
		}
	}
}
