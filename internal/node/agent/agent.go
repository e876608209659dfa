package agent

import (
	"context"
	"errors"
	stdlog "log"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"caelum/internal/config"
	"caelum/internal/controller/notify"
	"caelum/internal/core/predict"
	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/metrics"
	"caelum/internal/node/publish"
	"caelum/internal/node/state"
	"caelum/internal/node/usage"
	"caelum/internal/slurm"
)

// reconcileInterval is the interval between comparisons of the GPUs, the ledger and slurmctld.
const reconcileInterval = time.Minute

// Slurmctld is the set of slurmctld calls that the agent uses. Except in tests, it is a *slurm.Client.
type Slurmctld interface {
	publish.Slurmctld
	RequeueHold(ctx context.Context, id uint32) error
	RequeueFailed(ctx context.Context, id uint32) error
	EndJob(ctx context.Context, id uint32, reason string, still func(slurm.Job) bool) error
}

// Agent is the agent of a single node.
type Agent struct {
	cfg       config.Config
	node      *state.Node
	publisher *publish.Publisher
	usage     *usage.Monitor
	metrics   *metrics.Metrics

	hw          gpu.Hardware
	fractions   *gpu.Fractions // hw, or nil if the site has not configured fractions
	groups      jobGroups      // the cgroups of jobs with fractions
	caps        gpu.Caps
	procs       *gpu.Processes
	ledger      *ledger.Ledger
	ctl         Slurmctld
	log         *logrus.Entry
	limit       logLimit
	refusals    refusals
	jobMap      jobMap
	jobs        keyedLock
	leftovers   chan struct{}  // signals that processes are using an instance that no job holds
	remakes     chan struct{}  // signals that an idle instance needs a new compute instance
	hooks       chan struct{}  // signals that the destroy hook must run for an instance
	hookLimit   time.Duration  // hookLimit; shorter in tests
	fabricLimit time.Duration  // fabricLimit; shorter in tests
	hookRuns    int            // number of completed calls to doPaused; guarded by the node's lock
	outdated    chan error     // the reason why the agent must restart
	ends        chan unlimited // the jobs that endUnlimited must end
	forecasts   chan foreseen  // the forecasts that growBeforeFailure must examine

	repository usage.Repository // the repository of job runs, or nil
	// runOf returns a job's current run, or false if the job is not being observed.
	runOf func(job uint32) (predict.Run, bool)

	recordPause time.Duration        // the pause before an unclear job record is read again
	clock       func() time.Duration // CLOCK_MONOTONIC, for usage

	slurmMu sync.Mutex
	slurm   *slurm.Config // slurmctld's configuration, read only once; nil until then
	// privacy is slurmctld's configuration; nil until the first read. The agent rereads it every minute, or every hour
	// while the watcher confirms it.
	privacy atomic.Pointer[slurm.Config]
	sender  atomic.Pointer[notify.Sender] // nil until listen knows how datagrams are authenticated
	deaf    atomic.Pointer[string]        // why the notification port is not open; nil if it is open or not used

	nvlinksError string // the error from readNVLinks that was last logged
}

// New discovers the node's GPUs, opens the ledger, and repairs the state after a crash. It does not call slurmctld.
func New(cfg config.Config, hw gpu.Hardware, ctl Slurmctld, log *logrus.Entry) (*Agent, error) {
	return newAgent(cfg, hw, ctl, log, machine{proc: "/proc", procs: &gpu.Processes{Proc: "/proc"}})
}

// machine is what an agent uses of the host, except its GPUs.
type machine struct {
	proc   string         // the directory of the driver's files, /proc on a real host
	procs  *gpu.Processes // information about processes
	groups jobGroups      // the cgroups of jobs; if it is nil, the agent opens them if they are needed
	// softMig limits the memory of jobs with fraction_limits: softmig.
	softMig gpu.SoftMig
}

// newAgent is like New, but for the given host.
func newAgent(
	cfg config.Config, hw gpu.Hardware, ctl Slurmctld, log *logrus.Entry, m machine,
) (*Agent, error) {
	caps := gpu.Caps{Dev: cfg.DeviceDir, Proc: m.proc}
	if err := caps.Prepare(); err != nil { // gpu.OpenNVML has ignored the error
		log.WithError(err).Error("couldn't prepare the capability files that are required to change instances")
	}
	if err := caps.PrepareFabric(); err != nil {
		log.WithError(err).Error("couldn't create the capability files of Fabric Manager and the IMEX daemon")
	}
	fractions := m.withFractions(cfg, hw)
	if fractions != nil {
		hw = fractions
	}
	n, err := state.New(cfg, hw)
	if err != nil {
		return nil, err
	}
	for _, c := range n.Cards {
		if c.Problem != "" {
			log.WithField("gpu", c.Index).Error("not managed: " + c.Problem)
		}
		if c.Undivided != "" {
			log.WithField("gpu", c.Index).Error("the GPU has no fractions: " + c.Undivided)
		}
	}
	logUnused(cfg, n, log)
	a := &Agent{
		cfg:         cfg,
		node:        n,
		hw:          hw,
		ctl:         ctl,
		log:         log,
		caps:        caps,
		procs:       m.procs,
		groups:      m.groups,
		fractions:   fractions,
		ends:        make(chan unlimited, 16),
		outdated:    make(chan error, 1),
		leftovers:   make(chan struct{}, 1),
		remakes:     make(chan struct{}, 1),
		hooks:       make(chan struct{}, 1),
		hookLimit:   hookLimit,
		fabricLimit: fabricLimit,
		forecasts:   make(chan foreseen, 16),
		clock:       usage.Monotonic,
		recordPause: recordPause,
	}
	a.usage = a.newMonitor()
	a.metrics = metrics.New(a.metricsState)
	a.runOf = a.usage.Run
	if a.ledger, err = ledger.Open(filepath.Join(cfg.StateDir, "ledger.db")); err != nil {
		return nil, err
	}
	if a.publisher, err = a.newPublisher(); err == nil {
		err = a.start()
	}
	if err != nil {
		a.ledger.Close()
		return nil, err
	}
	return a, nil
}

// newMonitor returns the monitor that samples the GPU usage of the node's jobs.
func (a *Agent) newMonitor() *usage.Monitor {
	field, _ := a.cfg.Field() // "" if the configuration disables summaries
	return usage.NewMonitor(usage.Options{
		Node:     a.cfg.Node,
		Interval: a.cfg.SampleInterval,
		Field:    field,
		Meter:    func(g int, in gpu.Instance) (gpu.Meter, error) { return a.hw.Meter(g, in) },
		Sampled:  a.checkSample,
		Foreseen: a.foresee,
		SlurmctldTimes: func(ctx context.Context) (usage.SlurmctldTimes, error) {
			c, err := a.ctl.Config(ctx)
			return usage.SlurmctldTimes{Started: c.Started(), Memory: c.JobMemory()}, err
		},
		Now:   func() time.Time { return a.node.Now() },
		Clock: func() time.Duration { return a.clock() },
		Log:   a.log,
	})
}

// newPublisher returns the node's publisher.
func (a *Agent) newPublisher() (*publish.Publisher, error) {
	return publish.New(publish.Options{
		Config:        a.cfg,
		Node:          a.node,
		Slurmctld:     a.ctl,
		Ledger:        a.ledger,
		Log:           a.log,
		SlurmConfig:   a.slurmConfig,
		Privacy:       &a.privacy,
		HidesJobs:     a.hidesJobs,
		PublishesJobs: a.publishesJobs,
		Prepare:       a.makeRoom,
		Raised:        a.notifyWatcher,
		Failed:        func() { a.metrics.Failed(metrics.Publish) },
		Clock:         time.Now,
		Pause:         failpoint.Pause,
	})
}

// Publish requests a pass that begins after the call, waits for it to end, and returns its error.
func (a *Agent) Publish(ctx context.Context) error { return a.publisher.Publish(ctx) }

func (a *Agent) start() error {
	rebooted, err := a.load()
	if err != nil {
		return err
	}
	if !rebooted { // otherwise, the ledger is empty
		if err := a.recoverLeases(); err != nil {
			return err
		}
	}
	for g, c := range a.node.Cards {
		if c.Virtual && c.MayBeFull() {
			a.holdBack(g, gpu.ErrVirtual.Error())
		}
	}
	if err := a.compareGPUs(); err != nil {
		a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
	}
	a.limitAgain()
	a.removeGroups()
	a.startSoftMig()
	if err := a.loadNVLinks(); err != nil {
		return err
	}
	a.readNVLinks()
	a.closeIdle(a.node.Cards)
	if err := a.withdrawAgain(); err != nil {
		return err
	}
	for _, l := range a.node.Leases {
		a.observe(*l)
	}
	a.updateJobMap()
	if err := a.makeSlots(); err != nil {
		return err
	}
	return a.prepareRunDir()
}

// Keep sets the repository in which the runs of jobs are stored and the slurmdbd client to which their summaries are
// written. It must be called before Run.
func (a *Agent) Keep(repo usage.Repository, accounting usage.Accounting) {
	a.repository = repo
	a.usage.SetRepository(repo, accounting)
}

// observe starts recording the usage of a lease.
func (a *Agent) observe(l api.Lease) {
	var held []usage.Slice
	model := ""
	for _, s := range l.Slices {
		in := a.node.Held(l.Job, s)
		if in == nil {
			continue // the instance no longer exists; the comparison with the GPU has already logged this
		}
		model = a.node.Cards[s.GPU].Model.Type
		held = append(held, usage.Slice{GPU: s.GPU, Instance: a.node.HardwareOf(in), MemoryMiB: float64(s.MemoryMiB)})
	}
	a.usage.Begin(l, model, held)
}

// stopTimeout limits the time that a stopping agent waits for unfinished calls. If it expires during a call from a
// prolog, the prolog repeats the call. If the result of the interrupted call is not in the ledger, the next agent
// undoes it at startup.
const stopTimeout = 5 * time.Second

// Run serves calls and publishes offers until ctx is done. It returns an error if it cannot serve calls, or if the
// agent must restart.
func (a *Agent) Run(ctx context.Context) error {
	defer a.ledger.Close()
	listener, err := api.Listen(a.cfg.RunDir, a.procs.OwnerOf)
	if err != nil {
		return err
	}
	rootListener, err := api.ListenRoot(a.cfg.RunDir)
	if err != nil {
		listener.Close()
		return err
	}
	a.removeUnfinished()
	server := api.NewServer(a)
	server.ErrorLog = stdlog.New(warnings{a.log}, "", 0)
	defer server.Close()
	var tasks sync.WaitGroup
	working, stop := context.WithCancel(context.Background())
	finish := a.usage.Start(working, a.node.UsableGPUs())
	defer func() {
		stop()
		tasks.Wait()
		finish()
	}()
	tasks.Go(func() { a.publisher.Run(working) })
	tasks.Go(func() { a.reconciler(working) })
	tasks.Go(func() { a.grower(working) })
	tasks.Go(func() { a.endUnlimited(working) })
	tasks.Go(func() { a.runHooks(working) })
	tasks.Go(func() { a.reportMetrics(working) })
	tasks.Go(func() { a.watchXids(working) })
	if a.cfg.NotifyPort > 0 {
		tasks.Go(func() { a.listen(working) })
	}
	failed := make(chan error, 2)
	tasks.Go(func() { failed <- server.Serve(listener) })
	tasks.Go(func() { failed <- server.Serve(rootListener) })
	daemon.SdNotify(false, daemon.SdNotifyReady)
	a.log.WithField("gpus", len(a.node.Cards)).WithField("slots", a.node.SlotCount()).Info("ready")
	tasks.Go(func() { a.Publish(working) }) // publish immediately, without waiting for the first poll
	var why error
	select {
	case <-ctx.Done():
	case why = <-a.outdated:
	case err := <-failed:
		return err
	}
	daemon.SdNotify(false, daemon.SdNotifyStopping)
	patience, cancel := context.WithTimeout(working, stopTimeout)
	defer cancel()
	if err := server.Shutdown(patience); err != nil {
		a.log.WithError(err).Warn("the shutdown interrupted calls; the clients will repeat them")
	}
	return why
}

// warnings logs the errors of net/http as warnings.
type warnings struct{ *logrus.Entry }

func (w warnings) Write(p []byte) (int, error) {
	w.Warn(strings.TrimSpace(string(p)))
	return len(p), nil
}

// reconciler compares the GPUs, the ledger and slurmctld shortly after startup and then every minute, and publishes the
// result. While processes are using instances that no job holds, it also checks the GPUs every leftoverInterval. After
// a release, it re-creates the compute instances of idle instances (remake.go).
func (a *Agent) reconciler(ctx context.Context) {
	compare := time.After(publish.RetryInterval)
	confirmed, learned := false, time.Time{} // the result of the last poll, and the time of the last learnPrivacy
	var again <-chan time.Time               // set while processes are using an instance that no job holds
	var remake <-chan time.Time              // set while an idle instance needs a new compute instance
	failures := publish.Backoff{First: 5 * publish.RetryInterval, Most: reconcileInterval}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.leftovers:
			if again == nil {
				again = time.After(leftoverInterval)
			}
			continue
		case <-a.remakes:
			if remake == nil {
				remake = time.After(remakePause)
			}
			continue
		case <-remake:
			remake = nil
			a.remakeIdle()
		case <-again:
			a.checkLeftovers(ctx)
		case <-compare:
			compare = time.After(reconcileInterval)
			if (!confirmed || time.Since(learned) >= publish.RelistConfirmed) && a.learnPrivacy(ctx) {
				learned = time.Now()
			}
			err := a.compareGPUs()
			a.remakeIdle()
			a.readNVLinks()
			a.updateJobMap()
			err = errors.Join(err, a.adoptFull(ctx))
			var failed error
			confirmed, failed = a.publisher.Poll(ctx)
			err = errors.Join(err, failed, a.releaseGone(ctx), a.completeLeases(ctx))
			if pause := failures.Pause(err); pause > 0 && ctx.Err() == nil {
				a.log.WithError(err).Warn("couldn't compare the GPUs with the ledger and slurmctld's records; trying " +
					"again")
				compare = time.After(pause)
			}
		}
		if again = nil; a.hasLeftovers() {
			again = time.After(leftoverInterval)
		}
	}
}

func ledgerInstances(held []*state.Instance) []ledger.Instance {
	all := make([]ledger.Instance, len(held))
	for i, in := range held {
		all[i] = in.Instance
	}
	return all
}
