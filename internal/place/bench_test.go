package place

import (
	"container/heap"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/mig"
	"caelum/internal/trace"
)

func plainA100(t testing.TB) *mig.Model {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	return b.Select(mig.Plain)
}

// loaded returns a pool under load: jobs of the uniform mix arrive at the offered load and stay for an hour on average.
// Jobs that find no room leave.
func loaded(b testing.TB, gpus int, load float64) *Situation {
	model := plainA100(b)
	pool := NewPool(make([]GPU, gpus))
	for k := range gpus {
		pool.Set(k, GPU{Model: model})
	}
	s := &Situation{Pool: pool, MeanDuration: 3600}
	policy := byLayout(bestFit)
	var running endings
	for j := range (trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 20 * gpus, GPUs: gpus, Load: load, Seed: 1}).All() {
		s.Now = j.Submit
		for len(running) > 0 && running[0].at <= s.Now {
			e := heap.Pop(&running).(ending)
			pool.Finish(e.gpu, e.i, false)
		}
		if c := policy.Choose(s, Request{j.Profile, j.Duration}); c.Verdict == Here {
			pool.Start(c.GPU, c.Placement, s.Now+j.Duration)
			heap.Push(&running, ending{s.Now + j.Duration, c.GPU, c.Placement})
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 400 {
		s.Behind = append(s.Behind, Request{trace.ChurnProfiles[rng.IntN(6)], 3600 * rng.ExpFloat64()})
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

func benchmark(b *testing.B, s *Situation, policy Policy, profiles ...string) {
	b.ReportAllocs()
	defer cpuTime(b)()
	i := 0
	for b.Loop() {
		policy.Choose(s, Request{profiles[i%len(profiles)], 1800})
		i++
	}
}

// cpuTime reports the CPU time of the thread, which does not depend on other load on the machine.
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

// BenchmarkOneGPU makes a decision on one GPU that has a 3g.20gb.
func BenchmarkOneGPU(b *testing.B) {
	model := plainA100(b)
	i, _ := model.Placement("3g.20gb", 4)
	s := &Situation{Pool: NewPool([]GPU{{Model: model, Busy: mig.Layout(0).With(i)}})}
	for _, name := range Names() {
		policy, _ := ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, "1g.5gb") })
	}
}

// Benchmark6212 makes a decision among 6212 GPUs under load.
func Benchmark6212(b *testing.B) {
	s := loaded(b, 6212, 1)
	groups := 0
	for _, of := range s.Pool.models {
		groups += len(of.groups)
	}
	b.Logf("%d groups", groups)
	for _, name := range Names() {
		if name == "qla" || name == "scarcity" {
			continue
		}
		policy, _ := ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, trace.ChurnProfiles[:]...) })
	}
	// The same decisions according to the definitions of the policies.
	q := question{now: s.Now, d: 1800, futures: futures{}}
	for k := range s.Pool.Len() {
		q.gpus = append(q.gpus, plainly(s.Pool.GPU(k)))
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

// Benchmark16 makes a decision for the head of a long queue on 16 GPUs.
func Benchmark16(b *testing.B) {
	s := loaded(b, 16, 0.95)
	for _, name := range Names() {
		policy, _ := ByName(name)
		b.Run(name, func(b *testing.B) { benchmark(b, s, policy, "1g.5gb", "2g.10gb") })
	}
}
