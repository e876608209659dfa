package plan

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// BenchmarkPlan measures a plan for 500 waiting jobs and 64 nodes, each with eight partly busy A100-40GB GPUs.
func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"best-fit", "lifetime"} {
		policy, err := place.ByName(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, busy := range []float64{0, 0.5, 0.9, 1} {
			for _, without := range []int{0, 32} { // number of nodes without free CPUs
				b.Run(fmt.Sprintf("%s,busy=%.1f,without=%d", name, busy, without), func(b *testing.B) {
					snapshot := crowd(b, 64, 500, busy, without)
					defer cpuTime(b)()
					for b.Loop() {
						New(snapshot, Settings{Policy: policy}, nil).Plan()
					}
				})
			}
		}
	}
}

// BenchmarkSizes measures the same plan as BenchmarkPlan, but with the lifetime policy. Every job requests 1g.5gb,
// but may get a larger slice.
func BenchmarkSizes(b *testing.B) {
	policy, err := place.ByName(place.DefaultPolicy)
	if err != nil {
		b.Fatal(err)
	}
	for _, busy := range []float64{0, 0.5, 0.9, 1} {
		for _, tightest := range []bool{true, false} {
			b.Run(fmt.Sprintf("busy=%.1f,tightest=%v", busy, tightest), func(b *testing.B) {
				snapshot := crowd(b, 64, 500, busy, 0)
				for k := range snapshot.Queue.Waiting {
					w := &snapshot.Queue.Waiting[k]
					w.PerNode[0].Type = "1g.5gb"
					w.AdminComment = tags.Size + "1g.5gb"
				}
				defer cpuTime(b)()
				for b.Loop() {
					New(snapshot, Settings{Policy: policy, Tightest: tightest}, nil).Plan()
				}
			})
		}
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

// crowd returns a snapshot of a cluster with eight A100-40GB GPUs per node. Each placement of a random layout is busy
// with probability busy.
func crowd(b *testing.B, many, waiting int, busy float64, without int) Snapshot {
	rng := rand.New(rand.NewPCG(1, 1))
	small := model(b, "A100-40GB").Select(mig.Plain)
	names := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	var nodes []slurm.Node
	for k := range many {
		gpus := make([]place.GPU, 8)
		for g := range gpus {
			gpus[g] = a100(b)
			layouts := small.Layouts()
			l, _ := gpus[g].Model.Carry(small, layouts[rng.IntN(len(layouts))])
			for i := range l.Indices() {
				if rng.Float64() < busy {
					gpus[g].Hold(i, 1e9+rng.Float64()*1e5)
				}
			}
		}
		n := node(b, fmt.Sprint("n", k), gpus...)
		n.CPUs, n.CPUsFree = 64, 64
		if k < without {
			n.CPUsFree = 0
		}
		nodes = append(nodes, n)
	}
	var jobs []slurm.Waiting
	for id := range uint32(waiting) {
		w := waits(id+1, names[rng.IntN(len(names))], 1, 1)
		w.CPUs, w.TimeLimit = 1, time.Duration(1+rng.IntN(600))*time.Minute
		jobs = append(jobs, w)
	}
	return snapshotOf(nodes, jobs...)
}
