package main

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"caelum/contrib/lab/ends"
	"caelum/contrib/lab/papers"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// alike returns n A100-40GB.
func alike(t *testing.T, n int) []*mig.Model {
	t.Helper()
	b, err := model("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Repeat([]*mig.Model{b}, n)
}

// endEstimates lists the kinds of estimates for jobs' ends that the test compares.
var endEstimates = []struct {
	name      string
	corrector func() sim.Corrector
	estimate  func(seed uint64) func(trace.Job) float64
}{
	{"exact ends", nil, func(uint64) func(trace.Job) float64 { return nil }},
	{"limits 1 to 6 times too long", nil, func(seed uint64) func(trace.Job) float64 { return sim.Limits(1, 6, seed) }},
	{"the same, corrected", ends.New, func(seed uint64) func(trace.Job) float64 { return sim.Limits(1, 6, seed) }},
	{
		"predictions, lognormal error 0.3, corrected",
		ends.New,
		func(seed uint64) func(trace.Job) float64 { return papers.Predictions(0.3, seed) },
	},
}

// churn compares the policies on generated workloads that are long enough for a queue to form. The figures in
// contrib/lab/results.md are means over the seeds 101 to 100+CHURN_SEEDS:
//
//	CHURN=4000 CHURN_SEEDS=20 go test -run Churn -v ./policies
//	CHURN=4000 CHURN_SEEDS=20 CHURN_LOAD=0.7 go test -run Churn -v ./policies
//
// CHURN_LOAD is the load of the runs with a queue. If CHURN is not set, the test simulates only the policies that an
// order compares.
type churn struct {
	jobs, seeds int
	load        float64
	figures     bool // simulate all policies, for the figures
}

func readChurn() churn {
	c := churn{jobs: 4000, seeds: 1, load: 0.85}
	fmt.Sscan(os.Getenv("CHURN_LOAD"), &c.load)
	c.figures = os.Getenv("CHURN") != ""
	fmt.Sscan(os.Getenv("CHURN"), &c.jobs)
	fmt.Sscan(os.Getenv("CHURN_SEEDS"), &c.seeds)
	return c
}

// order is a check that compares the value of the first policy with the values of the other policies.
type order struct {
	of    []string
	judge func(map[string]float64) bool
}

// compare simulates the policies on every mix, and checks the order of their values. know is an index into
// endEstimates.
func (c churn) compare(
	t *testing.T,
	what string,
	config sim.Config,
	know int,
	value func(*sim.Result) float64,
	check order,
) {
	t.Helper()
	what += ", " + endEstimates[know].name
	names := check.of
	if c.figures {
		names = []string{"best-fit", "reach", "lifetime"}
	}
	for _, m := range trace.Mixes {
		got := map[string]float64{}
		for _, name := range names {
			var err error
			if config.Policy, err = place.ByName(name); err != nil {
				t.Fatal(err)
			}
			got[name] = c.mean(t, m.Mix, config, know, value)
		}
		line := fmt.Sprintf("%s, %-10s %s %8.4g; of it", what, m.Name, names[0], got[names[0]])
		for _, name := range names[1:] {
			line += fmt.Sprintf(" %s %.3f", name, got[name]/got[names[0]])
		}
		t.Log(line)
		if !check.judge(got) {
			t.Errorf("%s, %s: not the expected order of the policies: %v", what, m.Name, got)
		}
	}
}

// mean returns the mean of a value over all seeds.
func (c churn) mean(
	t *testing.T, mix trace.Mix, config sim.Config, know int, value func(*sim.Result) float64,
) (sum float64) {
	for seed := uint64(101); seed <= 100+uint64(c.seeds); seed++ {
		config.Corrector, config.Estimate = endEstimates[know].corrector, endEstimates[know].estimate(seed)
		jobs := trace.Churn{Mix: mix, Jobs: c.jobs, GPUs: len(config.GPUs), Load: c.load, Seed: seed}
		r, err := sim.Run(config, jobs.All())
		if err != nil {
			t.Fatal(err)
		}
		sum += value(r) / float64(c.seeds)
	}
	return sum
}

func meanWait(r *sim.Result) float64 { return r.Waits.Mean() }

// lifetimeFirst requires that jobs wait for a shorter time with lifetime than with best-fit.
var lifetimeFirst = order{[]string{"best-fit", "lifetime"}, func(r map[string]float64) bool {
	return r["lifetime"] < r["best-fit"]
}}

func TestChurnFIFO(t *testing.T) {
	c := readChurn()
	for know := range endEstimates[:min(len(endEstimates), 2*c.seeds-1)] {
		c.compare(t, "FIFO", sim.Config{GPUs: alike(t, 16)}, know, meanWait, lifetimeFirst)
	}
}

func TestChurnEASY(t *testing.T) {
	c := readChurn()
	config := sim.Config{GPUs: alike(t, 16), Discipline: sim.EASY}
	for know := range endEstimates[:min(2, c.seeds)] {
		c.compare(t, "EASY", config, know, meanWait, lifetimeFirst)
	}
}

func TestChurnWithoutQueue(t *testing.T) {
	c := readChurn()
	c.load = 1
	config := sim.Config{GPUs: alike(t, 32), Discipline: sim.Loss}
	for know := range endEstimates[:min(2, c.seeds)] {
		c.compare(t, "no queue, accepted", config, know, (*sim.Result).Accepted, order{
			[]string{"best-fit", "lifetime"},
			func(r map[string]float64) bool { return r["lifetime"] > r["best-fit"] },
		})
	}
}
