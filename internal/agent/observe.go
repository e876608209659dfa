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

// The slices of running jobs are looked at once a second: what a job has used is what its next run is given. Each GPU
// has a goroutine of its own for it, since a GPU that hangs takes its callers with it, and no lock is held during a
// call of the driver. Prologs and epilogs leave a note here and go on; the repository is written elsewhere (keep.go).
//
// There is no last sample at the release: a job's processes have gone when its epilog comes, and their memory with
// them.

// observation is of one run while it lasts.
type observation struct {
	// Run is what was known when it began.
	Run predict.Run
	// Began is when it was given its slices, Seen when they were last looked at, by CLOCK_MONOTONIC: it is the same for
	// all agents between two boots, and no clock that is set changes it.
	Began, Seen time.Duration
	Slices      []*usage

	left *observation // what an earlier agent left; until slurmctld has said that the job still runs
	kept bool         // in the repository
}

// shortest is how long a run must have been for its peak to say anything: a job needs so long to come to its GPU.
const shortest = time.Second

// run is the run that ended at this time.
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
	if most.Samples > 0 && end-o.Began >= shortest {
		r.Samples, r.PeakMiB, r.MedianMiB, r.HighMiB, r.Util = most.Samples, most.PeakMiB, most.quantile(
			0.5,
		), most.quantile(
			0.95,
		), most.util()
		for _, u := range o.Slices {
			r.Processes = max(r.Processes, u.Most)
		}
	}
	return r
}

// parseObservation reads an observation that an earlier agent has put into the repository.
func parseObservation(text []byte) (*observation, error) {
	o := &observation{}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("not an observation: %w", err)
	}
	if len(o.Slices) == 0 || slices.ContainsFunc(o.Slices, func(u *usage) bool { return u == nil || !u.sane() }) {
		return nil, errors.New("not an observation")
	}
	return o, nil
}

// observer has the observations of the jobs that hold slices.
type observer struct {
	mu    sync.Mutex
	open  map[uint32]*observation
	ended []predict.Run // to be put into the repository
}

// maxEnded bounds how many runs wait for a repository that does not answer.
const maxEnded = 10000

// monotonic is CLOCK_MONOTONIC.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has it
	}
	return time.Duration(ts.Nano())
}

// observe begins the observation of a lease.
func (a *Agent) observe(l api.Lease) {
	o := &observation{
		Run: predict.Run{
			Job: l.Job, Restart: l.Restart, Node: a.cfg.Node, Key: l.Key, Fingerprint: l.Fingerprint, UID: l.UID, User: l.User, Account: l.Account, Name: l.Name, Start: l.Since,
		},
		// A lease that is older than this has lost its observation, and nothing but the clock says how old it is.
		Began: a.clock() - max(a.now().Sub(time.Unix(l.Since, 0)).Truncate(time.Second), 0),
	}
	for _, s := range l.Slices {
		in := a.held(l.Job, s)
		if in == nil {
			continue // gone: the comparison with the GPU has said so
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

// observed ends the observation of a job's run, and leaves the run to the keeper. Gone: nobody knows when it ended, but
// it was there when it was last seen.
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

// end leaves a run to the keeper. The caller holds a.seen.mu.
func (a *Agent) end(o *observation, at time.Duration) {
	if a.repo == nil {
		return
	}
	if len(a.seen.ended) >= maxEnded {
		a.log.WithField("job", o.Run.Job).Warn("the repository does not answer: what this job used is not kept")
		return
	}
	a.seen.ended = append(a.seen.ended, o.run(at))
	a.keepSoon()
}

// stillRuns says that slurmctld has a job on the node: what an earlier agent has seen of it goes on.
func (a *Agent) stillRuns(job uint32) {
	a.seen.mu.Lock()
	defer a.seen.mu.Unlock()
	if o := a.seen.open[job]; o != nil {
		o.left = nil
	}
}

// sampleAll starts a sampler for each GPU and answers how to wait for their end. One whose GPU hangs is not waited for.
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

// sampler looks at the leased slices of a GPU until ctx ends.
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

// sample looks at the leased slices of a GPU once. The meters are the GPU's sampler's own.
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
		if err := a.took(u, use, err); errors.Is(err, gpu.ErrLost) {
			return
		} else if err == nil {
			a.judge(u, use.PIDs)
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

// on lists the slices of running jobs on a GPU.
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

// took notes what a slice had in use, if its job still runs, or why that could not be seen: a slice or a GPU that is
// gone is not looked at again.
func (a *Agent) took(u *usage, use gpu.Use, err error) error {
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
			log.Warn("a job's slice is gone: nothing more is learned of what the job uses")
		case !u.odd:
			u.odd = true
			log.Warn("couldn't see what a job uses; trying again")
		}
	}
	return err
}

// inUseBy is what the slices of a job have in use, by UUID; nil when it is not observed.
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

// withUse is a lease with what its slices have in use.
func (a *Agent) withUse(l api.Lease) api.Lease {
	uses := a.seen.inUseBy(l.Job)
	l.Slices = slices.Clone(l.Slices)
	for k := range l.Slices {
		l.Slices[k].Use = uses[l.Slices[k].UUID]
	}
	return l
}
