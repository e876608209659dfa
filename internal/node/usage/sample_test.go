package usage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// failing is a meter that returns an error while err is not nil.
type failing struct {
	reads int
	err   error
}

func (f *failing) Read() (gpu.Use, error) {
	f.reads++
	return gpu.Use{MemoryMiB: 100}, f.err
}
func (*failing) Close() {}

// TestErrorPasses checks that the slices of a job are sampled again after the driver has reported that they or their
// GPU are gone. The error is logged once per slice. On a lost GPU, a sample makes only one attempt.
func TestErrorPasses(t *testing.T) {
	for _, c := range []struct {
		err           error
		reads, logged int
	}{{gpu.ErrNotFound, 6, 2}, {gpu.ErrLost, 3, 1}, {errors.New("unknown"), 6, 2}} {
		meter, sampled := &failing{err: fmt.Errorf("GPU 0: %w", c.err)}, 0
		var text bytes.Buffer
		log := logrus.New()
		log.SetOutput(&text)
		m := NewMonitor(Options{
			Node: "n1", Log: logrus.NewEntry(log), Now: time.Now, Clock: Monotonic,
			Meter:   func(int, gpu.Instance) (gpu.Meter, error) { return meter, nil },
			Sampled: func(uint32, uint32, Slice, gpu.Use) { sampled++ },
		})
		var held []Slice
		for _, uuid := range []string{"MIG-1", "MIG-2"} {
			held = append(held, Slice{Instance: gpu.Instance{UUID: uuid}, MemoryMiB: slicedMiB})
		}
		m.Begin(api.Lease{Job: grown}, "a100", held)
		sampler := m.Sampler(0)
		for range 3 {
			sampler.Sample()
		}
		logged := strings.Count(text.String(), "couldn't sample the usage of a job")
		if meter.reads != c.reads || logged != c.logged || sampled != 0 {
			t.Errorf("%v: %d reads, want %d; logged %d times: %s", c.err, meter.reads, c.reads, logged, &text)
		}
		meter.err = nil
		if sampler.Sample(); sampled != len(held) {
			t.Errorf("after %v: %d slices were sampled", c.err, sampled)
		}
	}
}
