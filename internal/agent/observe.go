package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"caelum/internal/api"
	"caelum/internal/gpu"
	"caelum/internal/predict"
)

// The agent samples the usage of the slices of running jobs, once a second by default. The next run of a job gets a
// slice that fits this usage. Each GPU has its own sampler goroutine, since a call to a GPU that hangs does not return,
// and no lock is held during a call to the driver. Prologs and epilogs only begin and end an observation here. keep.go
// writes the repository.
//
// There is no last sample at the release: when the epilog runs, the processes of the job have ended and their memory is
// free.

// observation has the usage of one run while the run lasts.
type observation struct {
	// Run has the facts that were known when the run began.
	Run predict.Run
	// Began is the time at which the run got its slices, Seen the time of the last sample, both by CLOCK_MONOTONIC.
	// This clock is the same for all agents between two boots, and setting the system's time does not change it.
	Began, Seen time.Duration
	Slices      []*usage

	left *observation // the observation of an earlier agent, until slurmctld confirms that the job still runs
	kept bool         // the repository has the observation
}

// minObserved is the shortest run whose peak is recorded. A job needs about this time before it uses its GPU.
const minObserved = time.Second

// run returns the run and its usage, with end as the time at which it ended.
func (o *observation) run(end time.Duration) predict.Run {
	r := o.Run
	r.Seconds, r.Util = max(end-o.Began, 0).Seconds(), -1
	most := slices.MaxFunc(o.Slices, func(x, y *usage) int {
		return cmp.Or(cmp.Compare(x.PeakMiB, y.PeakMiB), cmp.Compare(x.Samples, y.Samples))
	})
	r.Profile, r.Slices = most.Profile, 0
	for _, u := range o.Slices {
		if u.Profile == most.Profile {
			r.Slices++
		}
	}
	if most.Samples > 0 && end-o.Began >= minObserved {
		r.Samples, r.PeakMiB, r.Util = most.Samples, most.PeakMiB, most.util()
		r.MedianMiB, r.HighMiB = most.quantile(0.5), most.quantile(0.95)
		for _, u := range o.Slices {
			r.Processes = max(r.Processes, u.Most)
		}
	}
	return r
}

// parseObservation parses an observation that an earlier agent wrote into the repository.
func parseObservation(text []byte) (*observation, error) {
	o := &observation{}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("not an observation: %w", err)
	}
	if len(o.Slices) == 0 || slices.ContainsFunc(o.Slices, func(u *usage) bool { return u == nil || !u.valid() }) {
		return nil, errors.New("not an observation: its slices or their samples are missing or contradictory")
	}
	return o, nil
}

// observer has the observations of the jobs that hold slices.
type observer struct {
	mu    sync.Mutex
	open  map[uint32]*observation // by job
	ended []predict.Run           // runs that are not in the repository yet
}

// maxEnded limits the ended runs in memory while the repository does not answer.
const maxEnded = 10000

// monotonic returns the time of CLOCK_MONOTONIC.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux kernel has this clock
	}
	return time.Duration(ts.Nano())
}

// observe begins the observation of a lease.
func (a *Agent) observe(l api.Lease) {
	o := &observation{
		Run: predict.Run{
			Job: l.Job, Restart: l.Restart, Node: a.cfg.Node, Key: l.Key, Fingerprint: l.Fingerprint,
			UID: l.UID, User: l.User, Account: l.Account, Name: l.Name, Start: l.Since,
		},
		// The lease may have been granted earlier, by an agent whose observation was lost. Only the system's time gives
		// its age.
		Began: a.clock() - max(a.now().Sub(time.Unix(l.Since, 0)).Truncate(time.Second), 0),
	}
	for _, s := range l.Slices {
		in := a.held(l.Job, s)
		if in == nil {
			continue // the instance is gone; the comparison with the GPU has logged that
		}
		o.Run.Board = a.cards[s.GPU].Model.Type
		o.Slices = append(
			o.Slices,
			&usage{
				GPU:       s.GPU,
				UUID:      s.UUID,
				Profile:   s.Profile,
				MemoryMiB: float64(s.MemoryMiB),
				LastUtil:  -1,
				in:        a.hwOf(in),
			},
		)
	}
	if len(o.Slices) == 0 {
		return
	}
	a.seen.mu.Lock()
	a.seen.open[l.Job] = o
	a.seen.mu.Unlock()
	a.keepSoon()
}

// observed ends the observation of a job's run, and queues the run for the repository. If gone is set, the epilog did
// not run and the end of the run is not known. The time of the last sample then counts as its end.
func (a *Agent) observed(job uint32, gone bool) {
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	o := a.seen.open[job]
	if o == nil {
		return
	}
	delete(a.seen.open, job)
	end := a.clock()
	if gone && o.left != nil {
		o = o.left
	}
	if gone && o.Seen > 0 {
		end = o.Seen
	}
	a.end(o, end)
}

// end queues an ended run for the repository. The caller holds a.seen.mu.
func (a *Agent) end(o *observation, at time.Duration) {
	if a.repo == nil {
		return
	}
	if len(a.seen.ended) >= maxEnded {
		a.log.WithField("job", o.Run.Job).Warn("the repository does not answer: the usage of this job is not stored")
		return
	}
	a.seen.ended = append(a.seen.ended, o.run(at))
	a.keepSoon()
}

// stillRuns records that slurmctld has the job on the node. The observation then continues that of an earlier agent.
func (a *Agent) stillRuns(job uint32) {
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	if o := a.seen.open[job]; o != nil {
		o.left = nil
	}
}

// sampleAll starts a sampler for each GPU. The returned function waits for the samplers to end, for at most a second,
// since the sampler of a GPU that hangs does not end.
func (a *Agent) sampleAll(ctx context.Context) (wait func()) {
	var samplers sync.WaitGroup
	for g, c := range a.cards {
		if a.usable(c) && a.cfg.SampleInterval > 0 {
			samplers.Go(func() { a.sampler(ctx, g) })
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

// sampler samples the leased slices of a GPU until ctx ends.
func (a *Agent) sampler(ctx context.Context, g int) {
	meters := map[*usage]gpu.Meter{}
	defer func() {
		for m := range maps.Values(meters) {
			m.Close()
		}
	}()
	tick := time.NewTicker(a.cfg.SampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.sample(g, meters)
		}
	}
}

// sample samples the leased slices of a GPU once. Only the GPU's sampler uses meters.
func (a *Agent) sample(g int, meters map[*usage]gpu.Meter) {
	leased := a.seen.on(g)
	for u, m := range meters {
		if !slices.Contains(leased, u) {
			m.Close()
			delete(meters, u)
		}
	}
	for _, u := range leased {
		use, err := a.meter(u, meters)
		if err := a.addSample(u, use, err); errors.Is(err, gpu.ErrLost) {
			return
		} else if err == nil {
			a.checkProcesses(u, use.PIDs)
		}
	}
}

func (a *Agent) meter(u *usage, meters map[*usage]gpu.Meter) (gpu.Use, error) {
	if meters[u] == nil {
		m, err := a.hw.Meter(u.GPU, u.in)
		if err != nil {
			return gpu.Use{}, err
		}
		meters[u] = m
	}
	return meters[u].Read()
}

// on returns the slices of running jobs on a GPU, without those that are gone.
func (s *observer) on(g int) (leased []*usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		for _, u := range o.Slices {
			if u.GPU == g && !u.over {
				leased = append(leased, u)
			}
		}
	}
	return leased
}

// addSample adds a sample to the usage of a slice if its job still runs, and returns err. If err is set, there is no
// sample and addSample logs err, once for each slice. A slice that is gone, or whose GPU is gone, is not sampled again.
func (a *Agent) addSample(u *usage, use gpu.Use, err error) error {
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	for job, o := range a.seen.open {
		if !slices.Contains(o.Slices, u) {
			continue
		}
		log := a.log.WithError(err).WithField("job", job).WithField("gpu", u.GPU).WithField("uuid", u.UUID)
		switch {
		case err == nil:
			u.add(use)
			o.Seen = a.clock()
		case errors.Is(err, gpu.ErrLost), errors.Is(err, gpu.ErrNotFound):
			u.over = true
			log.Warn("a job's slice is gone: its usage is no longer sampled")
		case !u.failed:
			u.failed = true
			log.Warn("couldn't sample the usage of a job; trying again")
		}
	}
	return err
}

// inUseBy returns the last sample of each slice of a job, by UUID; nil if the job is not observed.
func (s *observer) inUseBy(job uint32) map[string]*api.Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[job]
	if o == nil {
		return nil
	}
	uses := map[string]*api.Use{}
	for _, u := range o.Slices {
		if u.Samples > 0 {
			uses[u.UUID] = &api.Use{MemoryMiB: u.LastMiB, PeakMiB: u.PeakMiB, Util: u.LastUtil, Processes: u.Last}
		}
	}
	return uses
}

// withUse returns the lease with the usage of its slices.
func (a *Agent) withUse(l api.Lease) api.Lease {
	uses := a.seen.inUseBy(l.Job)
	l.Slices = slices.Clone(l.Slices)
	for k := range l.Slices {
		l.Slices[k].Use = uses[l.Slices[k].UUID]
	}
	return l
}
