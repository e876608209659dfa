package sim

import (
	"fmt"
	"math"
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

// endEstimates lists the kinds of estimates for jobs' ends that the test compares.
var endEstimates = []struct {
	name     string
	learn    bool
	estimate func(seed uint64) func(trace.Job) float64
}{
	{"exact ends", false, func(uint64) func(trace.Job) float64 { return nil }},
	{"limits 1 to 6 times too long", false, func(seed uint64) func(trace.Job) float64 { return Limits(1, 6, seed) }},
	{"the same, corrected", true, func(seed uint64) func(trace.Job) float64 { return Limits(1, 6, seed) }},
	{
		"predictions, lognormal error 0.3, corrected",
		true,
		func(seed uint64) func(trace.Job) float64 {
			return func(j trace.Job) float64 { return j.Duration * math.Exp(0.3*Chance(seed, j).NormFloat64()) }
		},
	},
}

// churn compares the policies on generated workloads that are long enough for a queue to form. The figures in
// contrib/lab/results.md are means over the seeds 101 to 100+CHURN_SEEDS:
//
//	CHURN=4000 CHURN_SEEDS=20 go test -run Churn -v ./internal/sim
//	CHURN=4000 CHURN_SEEDS=20 CHURN_LOAD=0.7 go test -run Churn -v ./internal/sim
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
	config Config,
	know int,
	value func(*Result) float64,
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
			config.Policy = policy(t, name)
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
func (c churn) mean(t *testing.T, mix trace.Mix, config Config, know int, value func(*Result) float64) (sum float64) {
	for seed := uint64(101); seed <= 100+uint64(c.seeds); seed++ {
		config.Learn, config.Said = endEstimates[know].learn, endEstimates[know].estimate(seed)
		jobs := trace.Churn{Mix: mix, Jobs: c.jobs, GPUs: len(config.GPUs), Load: c.load, Seed: seed}
		r, err := Run(config, jobs.All())
		if err != nil {
			t.Fatal(err)
		}
		sum += value(r) / float64(c.seeds)
	}
	return sum
}

func meanWait(r *Result) float64 { return r.Waits.Mean() }

// lifetimeFirst requires that jobs wait for a shorter time with lifetime than with best-fit.
var lifetimeFirst = order{[]string{"best-fit", "lifetime"}, func(r map[string]float64) bool {
	return r["lifetime"] < r["best-fit"]
}}

func TestChurnFIFO(t *testing.T) {
	c := readChurn()
	for know := range endEstimates[:min(len(endEstimates), 2*c.seeds-1)] {
		c.compare(t, "FIFO", Config{GPUs: gpus(t, "A100-40GB", 16)}, know, meanWait, lifetimeFirst)
	}
}

func TestChurnEASY(t *testing.T) {
	c := readChurn()
	config := Config{GPUs: gpus(t, "A100-40GB", 16), Discipline: EASY}
	for know := range endEstimates[:min(2, c.seeds)] {
		c.compare(t, "EASY", config, know, meanWait, lifetimeFirst)
	}
}

func TestChurnWithoutQueue(t *testing.T) {
	c := readChurn()
	c.load = 1
	config := Config{GPUs: gpus(t, "A100-40GB", 32), Discipline: Loss}
	for know := range endEstimates[:min(2, c.seeds)] {
		c.compare(t, "no queue, accepted", config, know, (*Result).Accepted, order{
			[]string{"best-fit", "lifetime"},
			func(r map[string]float64) bool { return r["lifetime"] > r["best-fit"] },
		})
	}
}

func BenchmarkChurn(b *testing.B) {
	for _, name := range []string{"best-fit", "reach", "lifetime"} {
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

// TestMemoryOfARun checks that the memory that Run allocates depends on the running and waiting jobs, but not on the
// number of ended jobs.
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
