package sim

import (
	"runtime"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
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
