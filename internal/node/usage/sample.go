package usage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"caelum/internal/node/gpu"
)

// Each GPU has its own sampler goroutine, because a call to a hanging GPU does not return. The samplers hold no lock
// during a call to the driver. They take no final sample when a slice is released, because the job's processes have
// ended and freed their memory before the epilog runs.

// startSamplers starts a sampler for each of the given GPUs. The returned function waits until the samplers have ended,
// but for at most one second.
func (m *Monitor) startSamplers(ctx context.Context, gpus []int) (wait func()) {
	var samplers sync.WaitGroup
	for _, g := range gpus {
		if m.Interval > 0 {
			samplers.Go(func() { m.Sampler(g).run(ctx) })
		}
	}
	return func() {
		ended := make(chan struct{})
		go func() {
			samplers.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
	}
}

// Sampler samples the slices of running jobs on one GPU. A Sampler must be used by only one goroutine.
type Sampler struct {
	m      *Monitor
	gpu    int
	meters map[*sliceUsage]gpu.Meter
}

// Sampler returns a sampler for the slices on GPU g.
func (m *Monitor) Sampler(g int) *Sampler { return &Sampler{m, g, map[*sliceUsage]gpu.Meter{}} }

// Slices returns the number of slices for which the sampler has an open meter.
func (s *Sampler) Slices() int { return len(s.meters) }

// run samples the GPU until ctx is done.
func (s *Sampler) run(ctx context.Context) {
	defer func() {
		for meter := range maps.Values(s.meters) {
			meter.Close()
		}
	}()
	tick := time.NewTicker(s.m.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Sample()
		}
	}
}

// Sample samples the GPU's slices once.
func (s *Sampler) Sample() {
	held := s.m.on(s.gpu)
	for u, meter := range s.meters {
		if !slices.ContainsFunc(held, func(h heldSlice) bool { return h.sliceUsage == u }) {
			meter.Close()
			delete(s.meters, u)
		}
	}
	for _, h := range held {
		use, err := s.read(h.sliceUsage)
		if err := s.m.addSample(h, use, err); errors.Is(err, gpu.ErrLost) {
			return // the calls for the other slices would fail too, and may take long
		} else if err == nil {
			if s.m.Sampled != nil {
				s.m.Sampled(h.job, h.uid, h.slice, use)
			}
			s.m.warn(h)
		}
	}
}

func (s *Sampler) read(u *sliceUsage) (gpu.Use, error) {
	if s.meters[u] == nil {
		meter, err := s.m.Meter(u.GPU, u.slice.Instance)
		if err != nil {
			return gpu.Use{}, err
		}
		s.meters[u] = meter
	}
	return s.meters[u].Read()
}

// heldSlice is a slice together with the job that holds it and the job's user.
type heldSlice struct {
	*sliceUsage
	job, uid uint32
}

// on returns the slices of running jobs on a GPU.
func (m *Monitor) on(g int) (held []heldSlice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for job, o := range m.open {
		for _, u := range o.Slices {
			if u.GPU == g {
				held = append(held, heldSlice{u, job, o.Run.UID})
			}
		}
	}
	return held
}

// addSample adds a sample to a slice's usage if the job is still running. err is the error from taking the sample, and
// addSample returns it unchanged. If err is not nil, there is no sample to add, and the error is logged once per slice.
// Also if the slice or its GPU is reported as gone, the sampler tries again, because the error may pass, and samples
// enforce the memory limits of fractions.
func (m *Monitor) addSample(h heldSlice, use gpu.Use, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, o := h.sliceUsage, m.open[h.job]
	if o == nil || !slices.Contains(o.Slices, u) {
		return err
	}
	switch {
	case err == nil:
		u.add(use)
		o.Seen = m.Clock()
		u.Series.Add((o.Seen - o.Began).Seconds(), use.MemoryMiB-o.slackMiB(u.UUID, o.Seen))
		m.forecast(o, u)
	case !u.failed:
		u.failed = true
		m.Log.WithError(err).WithField("job", h.job).WithField("gpu", u.GPU).WithField("uuid", u.UUID).
			Warn("couldn't sample the usage of a job; trying again")
	}
	return err
}
