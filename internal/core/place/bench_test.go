package place_test

import (
	"container/heap"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
	"caelum/internal/sim/trace"
)

// loaded returns a situation in which jobs from the uniform mix, which run for an hour on average, arrive at the
// given load. Jobs that do not fit are dropped.
func loaded(b testing.TB, gpus int, load float64) *place.Situation {
	model := placetest.PlainA100(b)
	pool := place.NewPool(make([]place.GPU, gpus))
	for k := range gpus {
		pool.Set(k, place.GPU{Model: model})
	}
	s := &place.Situation{Pool: pool, MeanDuration: 3600}
	policy, err := place.ByName("best-fit")
	if err != nil {
		b.Fatal(err)
	}
	var running endings
	for j := range (trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 20 * gpus, GPUs: gpus, Load: load, Seed: 1}).All() {
		s.Now = j.Submit
		for len(running) > 0 && running[0].at <= s.Now {
			e := heap.Pop(&running).(ending)
			pool.Finish(e.gpu, e.i, false)
		}
		if c := policy.Choose(s, place.Request{Profile: j.Profile, Duration: j.Duration}); c.Verdict == place.Here {
			pool.Start(c.GPU, c.Placement, s.Now+j.Duration)
			heap.Push(&running, ending{s.Now + j.Duration, c.GPU, c.Placement})
		}
	}
	return s
}

type ending struct {
	at     float64
	gpu, i int
}
type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any          { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

func benchmark(b *testing.B, s *place.Situation, policy place.Policy, profiles ...string) {
	b.ReportAllocs()
	defer cpuTime(b)()
	i := 0
	for b.Loop() {
		policy.Choose(s, place.Request{Profile: profiles[i%len(profiles)], Duration: 1800})
		i++
	}
}

// cpuTime reports the thread's CPU time, which, unlike elapsed time, does not depend on the load of the machine.
func cpuTime(b *testing.B) (stop func()) {
	used := func() time.Duration {
		var t unix.Timespec
		unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
		return time.Duration(t.Nano())
	}
	runtime.LockOSThread()
	before := used()
	return func() {
		b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op")
		runtime.UnlockOSThread()
	}
}

// BenchmarkOneGPU measures a decision for one GPU with a busy 3g.20gb.
func BenchmarkOneGPU(b *testing.B) {
	model := placetest.PlainA100(b)
	i, _ := model.Placement("3g.20gb", 4)
	s := &place.Situation{Pool: place.NewPool([]place.GPU{{Model: model, Busy: mig.Layout(0).With(i)}})}
	for _, name := range place.Names() {
		policy, _ := place.ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, "1g.5gb") })
	}
}

// Benchmark6212 measures a decision for 6212 GPUs under load.
func Benchmark6212(b *testing.B) {
	s := loaded(b, 6212, 1)
	layouts := map[mig.Layout]bool{}
	for k := range s.Pool.Len() {
		layouts[s.Pool.GPU(k).Busy] = true
	}
	b.Logf("%d layouts", len(layouts))
	for _, name := range place.Names() {
		policy, _ := place.ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, trace.ChurnProfiles[:]...) })
	}
	// The remaining benchmarks measure the definitions of the policies (definitions_test.go) for comparison.
	q := question{now: s.Now, d: 1800, futures: placetest.Futures{}}
	for k := range s.Pool.Len() {
		q.gpus = append(q.gpus, placetest.PlainGPUOf(s.Pool.GPU(k)))
	}
	for _, name := range []string{"best-fit", "reach", "lifetime"} {
		b.Run(name+"/by definition", func(b *testing.B) {
			i := 0
			for b.Loop() {
				q.profile = trace.ChurnProfiles[i%len(trace.ChurnProfiles)]
				definitions[name](q)
				i++
			}
		})
	}
}

// Benchmark16 measures a decision for the head of a long queue on 16 GPUs.
func Benchmark16(b *testing.B) {
	s := loaded(b, 16, 0.95)
	for _, name := range place.Names() {
		policy, _ := place.ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, "1g.5gb", "2g.10gb") })
	}
}
