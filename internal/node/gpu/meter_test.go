package gpu_test

import (
	"bufio"
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// compute starts a process on a MIG device, and waits until it has opened the device.
func compute(t testing.TB, node *gputest.Node, uuid string, args ...string) (end func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Build(), "cuda-process"), append(args, "--seconds", "3600", "--print")...)
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(end)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("cuda-process: %v", err)
	}
	return end
}

// metered creates an instance, and returns it with a meter for it.
func metered(t testing.TB, node *gputest.Node, profile string, start int) (gpu.Instance, gpu.Meter) {
	t.Helper()
	in, err := node.Create(0, profile, start)
	if err != nil {
		t.Fatal(err)
	}
	m, err := node.Meter(0, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return in, m
}

func discovered(t testing.TB, model string) *gputest.Node {
	t.Helper()
	node := gputest.New(t, model, 1)
	if _, err := node.GPUs(); err != nil {
		t.Fatal(err)
	}
	return node
}

// until reads the meter repeatedly until the given amount of memory is in use. An emulated process allocates its memory
// shortly after opening its device.
func until(t testing.TB, m gpu.Meter, mib float64) gpu.Use {
	t.Helper()
	for before := -1.0; ; {
		use, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		if use.MemoryMiB == mib {
			return use
		}
		if use.MemoryMiB < before || use.MemoryMiB > mib {
			t.Fatalf("%v MiB in use after %v MiB, want growth up to %v MiB", use.MemoryMiB, before, mib)
		}
		before = use.MemoryMiB
	}
}

// TestMeterMemory checks that a meter finds its instance even if the indices of the MIG devices change. An A100 reports
// no utilisation.
func TestMeterMemory(t *testing.T) {
	node := discovered(t, "A100-40GB")
	front, _ := metered(t, node, "1g.5gb", 0)
	a, ma := metered(t, node, "1g.5gb", 1)
	b, mb := metered(t, node, "2g.10gb", 2)
	compute(t, node, a.UUID, "--memory", "700", "--util", "0.5")
	compute(t, node, b.UUID, "--memory", "5000")
	until(t, ma, 700)
	until(t, mb, 5000)
	if err := node.Destroy(0, front.GI); err != nil {
		t.Fatal(err)
	}
	for m, want := range map[gpu.Meter]float64{ma: 700, mb: 5000} {
		if use, err := m.Read(); err != nil || use.MemoryMiB != want || use.Util != -1 {
			t.Errorf("after destroying another instance: %+v, %v; want %v MiB, no utilisation", use, err, want)
		}
	}
}

// TestMeterUtil checks Hopper GPUs, which have counters. Util must be known from the second reading on.
func TestMeterUtil(t *testing.T) {
	node := discovered(t, "H100-80GB")
	in, m := metered(t, node, "1g.10gb", 0)
	if use, err := m.Read(); err != nil || use.Util != -1 {
		t.Errorf("the first reading: %+v, %v", use, err)
	}
	if use, err := m.Read(); err != nil || use.Util != 0 {
		t.Errorf("no process: %+v, %v", use, err)
	}
	end := compute(t, node, in.UUID, "--util", "0.37")
	if use, err := m.Read(); err != nil || math.Abs(use.Util-0.37) > 1e-4 {
		t.Errorf("one process with a utilisation of 0.37: %+v, %v", use, err)
	}
	// If the counters cannot be read, the meter must still report the memory. In this case, Util must be unknown in two
	// readings.
	node.Emulator(t, "fault", "add", "--call", "GPM", "--error", "UNKNOWN")
	for _, want := range []float64{-1, -1, 0.37} {
		if use, err := m.Read(); err != nil || math.Abs(use.Util-want) > 1e-4 {
			t.Errorf("%+v, %v, want %v", use, err, want)
		}
	}
	// An open meter must not prevent the destruction of its instance.
	end()
	if err := node.Destroy(0, in.GI); err != nil {
		t.Error(err)
	}
}

// TestMeterOfWhatIsGone checks that a meter returns errors after its instance has been destroyed, even if another
// instance has been created at the same placement, and after its GPU has been lost.
func TestMeterOfWhatIsGone(t *testing.T) {
	node := discovered(t, "H100-80GB")
	in, m := metered(t, node, "1g.10gb", 0)
	if err := node.Destroy(0, in.GI); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a destroyed instance: %v", err)
	}
	if again, _ := metered(t, node, "1g.10gb", 0); again.GI != in.GI {
		t.Fatalf("%+v", again)
	}
	if _, err := m.Read(); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a new instance at the same placement: %v", err)
	}
	node.Emulator(t, "lose", "0")
	if _, err := m.Read(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("a lost GPU: %v", err)
	}
	if _, err := node.Meter(7, in); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a GPU that does not exist: %v", err)
	}
}

// cpu returns the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkMeter measures the CPU time of a reading, and reports the share of a core that one reading per second uses.
// Each call to the emulator opens, locks and reads a file.
func BenchmarkMeter(b *testing.B) {
	for model, profile := range map[string]string{"A100-40GB": "1g.5gb", "H100-80GB": "1g.10gb"} {
		b.Run(model, func(b *testing.B) {
			node := discovered(b, model)
			in, m := metered(b, node, profile, 6)
			compute(b, node, in.UUID, "--memory", "700", "--util", "0.5")
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				if _, err := m.Read(); err != nil {
					b.Fatal(err)
				}
			}
			seconds := (cpu(b) - before).Seconds() / float64(b.N)
			b.ReportMetric(1e6*seconds, "µs-cpu/slice")
			b.ReportMetric(100*seconds, "%core/slice")
		})
	}
}
