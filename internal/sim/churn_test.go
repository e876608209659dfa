package sim

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/trace"
)

func gpus(t testing.TB, model string, n int) []*mig.Model {
	t.Helper()
	b, err := mig.ModelByName(model)
	if err != nil {
		t.Fatal(err)
	}
	b = b.Select(mig.Plain)
	all := make([]*mig.Model, n)
	for k := range all {
		all[k] = b
	}
	return all
}

func policy(t testing.TB, name string) place.Policy {
	t.Helper()
	p, err := place.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// endEstimate is a kind of knowledge that policies have of the ends of jobs.
type endEstimate struct {
	name     string
	learn    bool
	estimate func(seed uint64) func(trace.Job) float64
}

var endEstimates = []endEstimate{
	{"exact ends", false, func(uint64) func(trace.Job) float64 { return nil }},
	{"limits 1 to 6 times too long", false, func(seed uint64) func(trace.Job) float64 { return Limits(1, 6, seed) }},
	{"the same, corrected", true, func(seed uint64) func(trace.Job) float64 { return Limits(1, 6, seed) }},
	{
		"predictions, lognormal error 0.3, corrected",
		true,
		func(seed uint64) func(trace.Job) float64 { return Predictions(0.3, seed) },
	},
}

// TestChurn compares the policies on churn that is long enough for a queue to form. The figures of docs/results.md are
// the means of the seeds 101 to 100+CHURN_SEEDS:
//
//	CHURN=4000 CHURN_SEEDS=20 go test -run Churn -v ./internal/sim
//	CHURN=4000 CHURN_SEEDS=20 CHURN_LOAD=0.7 go test -run Churn -v ./internal/sim
//
// CHURN_LOAD is the load of the runs with a queue.
func TestChurn(t *testing.T) {
	c := churn{jobs: 4000, seeds: 1}
	load := 0.85
	fmt.Sscan(os.Getenv("CHURN_LOAD"), &load)
	fmt.Sscan(os.Getenv("CHURN"), &c.jobs)
	fmt.Sscan(os.Getenv("CHURN_SEEDS"), &c.seeds)
	wait := func(r *Result) float64 { return r.Waits.Mean() }
	for _, k := range endEstimates[:min(len(endEstimates), 2*c.seeds-1)] {
		// At low load, qla is not better than lifetime in every mix.
		c.compare(t, "FIFO, ", k, Config{GPUs: gpus(t, "A100-40GB", 16)}, load, wait, func(r results) bool {
			return (r["qla"] < r["lifetime"] || load < 0.8) && r["lifetime"] < r["best-fit"]
		})
	}
	for _, k := range endEstimates[:min(2, c.seeds)] {
		config := Config{GPUs: gpus(t, "A100-40GB", 16), Discipline: EASY}
		c.compare(t, "EASY, ", k, config, load, wait, func(r results) bool {
			return r["qla"] < r["best-fit"] && r["lifetime"] < r["best-fit"]
		})
		config = Config{GPUs: gpus(t, "A100-40GB", 32), Discipline: Loss}
		c.compare(t, "no queue, accepted, ", k, config, 1, (*Result).Accepted, func(r results) bool {
			return r["scarcity"] > r["best-fit"]
		})
	}
}

// churn is the number of jobs of a run, and the number of seeds over which a figure is averaged.
type churn struct{ jobs, seeds int }

// results has a figure for each policy.
type results map[string]float64

// compare logs a figure of each policy for every mix, and checks the order of the policies.
func (c churn) compare(
	t *testing.T, what string, ends endEstimate, config Config, load float64, figure func(*Result) float64,
	expected func(results) bool,
) {
	t.Helper()
	names := []string{"best-fit", "reach", "fgd", "lifetime", "scarcity", "qla"}
	for _, m := range trace.Mixes {
		got := results{}
		for _, name := range names {
			config.Policy = policy(t, name)
			got[name] = c.mean(t, m.Mix, ends, config, load, figure)
		}
		line := fmt.Sprintf("%s%s, %-10s %s %8.4g; of it", what, ends.name, m.Name, names[0], got[names[0]])
		for _, name := range names[1:] {
			line += fmt.Sprintf(" %s %.3f", name, got[name]/got[names[0]])
		}
		t.Log(line)
		if !expected(got) {
			t.Errorf("%s%s, %s: not the expected order of the policies: %v", what, ends.name, m.Name, got)
		}
	}
}

// mean returns the mean of a figure over the seeds.
func (c churn) mean(
	t *testing.T, mix trace.Mix, ends endEstimate, config Config, load float64, figure func(*Result) float64,
) (mean float64) {
	t.Helper()
	for seed := uint64(101); seed <= 100+uint64(c.seeds); seed++ {
		config.Learn, config.Said = ends.learn, ends.estimate(seed)
		jobs := trace.Churn{Mix: mix, Jobs: c.jobs, GPUs: len(config.GPUs), Load: load, Seed: seed}
		r, err := Run(config, jobs.All())
		if err != nil {
			t.Fatal(err)
		}
		mean += figure(r) / float64(c.seeds)
	}
	return mean
}

func BenchmarkChurn(b *testing.B) {
	for _, name := range []string{"best-fit", "reach", "lifetime", "qla"} {
		b.Run(name, func(b *testing.B) {
			events := 0
			for b.Loop() {
				r, err := Run(
					Config{GPUs: gpus(b, "A100-40GB", 16), Policy: policy(b, name)},
					trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 20000, GPUs: 16, Load: 0.85, Seed: 1}.All(),
				)
				if err != nil {
					b.Fatal(err)
				}
				events += r.Submitted + r.Started
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// The memory of a run depends on the running and waiting jobs, not on the number of ended jobs.
func TestMemoryOfARun(t *testing.T) {
	const few, many = 2000, 60000
	live := map[int]uint64{}
	for _, n := range []int{few, many} {
		jobs := func(yield func(trace.Job) bool) {
			k := 0
			for j := range (trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: n, GPUs: 16, Load: 0.6, Seed: 1}).All() {
				if k++; k == n {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					live[n] = m.HeapAlloc
				}
				if !yield(j) {
					return
				}
			}
		}
		if _, err := Run(Config{GPUs: gpus(t, "A100-40GB", 16), Policy: policy(t, "best-fit")}, jobs); err != nil {
			t.Fatal(err)
		}
	}
	if perJob := float64(live[many]-min(live[few], live[many])) / (many - few); perJob > 4 {
		t.Errorf("%d jobs take %d bytes, %d take %d: %.1f for each ended job",
			few, live[few], many, live[many], perJob)
	}
	t.Logf("%d jobs: %d bytes; %d: %d", few, live[few], many, live[many])
}
