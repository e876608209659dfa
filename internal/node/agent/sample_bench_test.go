package agent

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the CPU time that this process has used so far.
func cpu(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkSample samples a GPU with seven busy slices. It reports the CPU time per sample and slice, and the share
// of a core that one sample per second uses.
func BenchmarkSample(b *testing.B) {
	l := newLearning(b, 1)
	for range 7 {
		l.uses(l.lease(l.startNow("1g.5gb:1")).Slices[0].UUID, 700)
	}
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		l.sample(0)
	}
	seconds := (cpu(b) - before).Seconds() / float64(b.N) / 7
	b.ReportMetric(1e6*seconds, "µs-cpu/slice")
	b.ReportMetric(100*seconds, "%core/slice")
}
