package usage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"caelum/internal/core/predict"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// Options holds the agent's settings and functions that a Monitor uses.
type Options struct {
	// Node is the node's name in slurm.conf.
	Node string
	// Interval is the time between samples of a slice. 0 disables sampling.
	Interval time.Duration
	// Field is the field of a job's accounting record to which the Monitor writes summaries. If it is empty, the
	// Monitor does not write summaries.
	Field slurm.AccountingField
	// Meter returns a meter that reads the usage of an instance on GPU g.
	Meter func(g int, in gpu.Instance) (gpu.Meter, error)
	// A sampler calls Sampled after each sample of a job's slice. It holds no lock during the call, so another
	// goroutine may have released the slice since the sample was taken.
	Sampled func(job, uid uint32, s Slice, use gpu.Use)
	// Foreseen is called when a job's forecast memory use exceeds its slice's memory and its lease has Grow =
	// api.GrowForecast. A sampler calls it without holding a lock and repeats the call every foreseenEvery until the
	// run ends. If it is nil, forecasts are only shown.
	Foreseen func(job uint32, f predict.Forecast)
	// SlurmctldTimes asks slurmctld for its times. If it is nil, the recorder ignores restarts of slurmctld.
	SlurmctldTimes func(ctx context.Context) (SlurmctldTimes, error)
	// Now returns the wall-clock time. Clock returns the time of CLOCK_MONOTONIC ([Monotonic]).
	Now   func() time.Time
	Clock func() time.Duration
	Log   *logrus.Entry
}

// Slice is a slice of a job.
type Slice struct {
	GPU int // the index of the GPU
	gpu.Instance
	MemoryMiB float64
}

// Monitor observes the slices of running jobs. Its methods may be called concurrently.
type Monitor struct {
	Options

	mu    sync.Mutex
	open  map[uint32]*observation // by job
	ended []predict.Run           // finished runs that are not in the repository yet

	repo       Repository // if nil, the Monitor shows the usage but does not store it
	accounting Accounting
	toStore    chan struct{} // signals that observations or runs must be stored
	toRecord   chan struct{} // signals that summaries must be written
	repoFailed atomic.Bool   // true if the last call to the repository failed
	tookOver   bool          // true if takeOver has read the stored observations; used by only one goroutine
	pruned     time.Time     // the time of the last call to Prune; used only by the storer
	waiting    atomic.Int64  // the number of summaries that are not yet stored in slurmdbd
	dbdFailed  atomic.Bool   // true if a failure of slurmdbd has been logged
	spoils     sync.Once     // logs the message about another tool's text only once
	restarts   restarts      // restarts of slurmctld
}

// NewMonitor returns a Monitor without a repository. It shows the usage of jobs, but does not store it.
func NewMonitor(o Options) *Monitor {
	return &Monitor{
		Options:  o,
		open:     map[uint32]*observation{},
		toStore:  make(chan struct{}, 1),
		toRecord: make(chan struct{}, 1),
	}
}

// Monotonic returns the time of CLOCK_MONOTONIC. Neither a restart of the agent nor a change of the system time affects
// this clock; only a reboot resets it.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // not possible, because every Linux kernel supports this clock
	}
	return time.Duration(ts.Nano())
}

// Start samples the slices on these GPUs and stores the usage until ctx is done. The caller must call finish after the
// last calls to Begin and End. finish stores the observations for the next agent. It waits for all goroutines to end,
// but at most one second for the samplers, because the sampler of a hanging GPU does not end.
func (m *Monitor) Start(ctx context.Context, gpus []int) (finish func()) {
	samplersEnd := m.startSamplers(ctx, gpus)
	var tasks sync.WaitGroup
	if m.repo != nil {
		tasks.Go(func() { m.storer(ctx) })
		tasks.Go(func() { m.recorder(ctx) })
	}
	return func() {
		tasks.Wait()
		samplersEnd()
		if m.repo != nil {
			m.Flush(true)
		}
	}
}

// Begin starts observing a lease. model is the slices' GPU model, given as the Type in gres.conf.
func (m *Monitor) Begin(l api.Lease, model string, held []Slice) {
	if len(held) == 0 {
		return
	}
	o := &observation{
		Run: predict.Run{Job: l.Job, Restart: l.Restart, Node: m.Node, GPUType: model, UID: l.UID, Start: l.Since},
		// An earlier agent may have granted the lease, and its observation may have been lost. In that case, only the
		// system time shows the age of the lease. Since is rounded down to whole seconds, so the lease is on average
		// half a second younger than Since suggests.
		Began: m.Clock() - max(m.Now().Sub(time.Unix(l.Since, 0))-time.Second/2, 0),
	}
	o.describe(l)
	for _, s := range held {
		o.Slices = append(
			o.Slices,
			&sliceUsage{GPU: s.GPU, UUID: s.UUID, Profile: s.Profile, MemoryMiB: s.MemoryMiB, LastUtil: -1, slice: s},
		)
	}
	m.mu.Lock()
	m.open[l.Job] = o
	m.mu.Unlock()
	m.storeSoon()
}

// Describe replaces what the observation of a job's run has from its lease, except the slices and the start.
func (m *Monitor) Describe(l api.Lease) {
	m.mu.Lock()
	if o := m.open[l.Job]; o != nil && o.Run.Restart == l.Restart {
		o.describe(l)
		o.stored = false
	}
	m.mu.Unlock()
	m.storeSoon()
}

// Resize records that a job's slice has another size from now on: the given profile, with mib of memory.
func (m *Monitor) Resize(job uint32, uuid, profile string, mib float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[job]
	if o == nil {
		return
	}
	for _, u := range o.Slices {
		if u.UUID == uuid {
			u.rescale(mib)
			u.Profile, u.forecast, u.next = profile, predict.Forecast{}, 0
			o.warned, o.stored = 0, false
		}
	}
	m.storeSoon()
}

// Run returns a job's current run and its usage so far, or false if the job is not observed.
func (m *Monitor) Run(job uint32) (predict.Run, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[job]
	if o == nil {
		return predict.Run{}, false
	}
	return o.run(m.Clock()), true
}

// End ends the observation of a job's run and queues the run for the repository. If gone is true, no epilog has run,
// and the time of the last sample counts as the end of the run.
func (m *Monitor) End(job uint32, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[job]
	if o == nil {
		return
	}
	delete(m.open, job)
	end := m.Clock()
	if gone && o.left != nil {
		o = o.left
	}
	if gone && o.Seen > 0 {
		end = o.Seen
	}
	m.queue(o, end)
}

// Confirm records that slurmctld lists the job on the node. The job's observation then continues the observation of an
// earlier agent.
func (m *Monitor) Confirm(job uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.open[job]; o != nil {
		o.left = nil
	}
}

// WithUse returns a copy of the lease with the last sample of each slice and the job's Xid errors.
func (m *Monitor) WithUse(l api.Lease) api.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.open[l.Job]
	if o == nil {
		return l
	}
	l.Xids = o.Run.Xids
	l.Slices = slices.Clone(l.Slices)
	for _, u := range o.Slices {
		k := slices.IndexFunc(l.Slices, func(s api.Slice) bool { return s.UUID == u.UUID })
		if k >= 0 && u.Samples > 0 {
			l.Slices[k].Use = u.use()
		}
	}
	return l
}

// SummariesWaiting returns the number of summaries that are not yet stored in slurmdbd.
func (m *Monitor) SummariesWaiting() int { return int(m.waiting.Load()) }

// RepositoryFailed reports whether the last access to the repository failed.
func (m *Monitor) RepositoryFailed() bool { return m.repoFailed.Load() }
