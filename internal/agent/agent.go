// Package agent is caelumd: it owns the node's MIG, leases slices to jobs, publishes what is free, and keeps GPU,
// ledger and slurmctld in agreement. What to place where and what to offer it asks of the pure packages place and
// offer.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"caelum/internal/api"
	"caelum/internal/gpu"
	"caelum/internal/ledger"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"caelum/internal/wake"
)

// reconcileInterval is how often GPU, ledger and slurmctld are compared.
const reconcileInterval = time.Minute

// Controller is what the agent needs of slurmctld; *slurm.Client is the real one.
type Controller interface {
	Node(ctx context.Context, name string) (slurm.Node, error)
	Nodes(ctx context.Context) ([]slurm.Node, error)
	UpdateNode(ctx context.Context, node string, gres []slurm.GRES, extra string) error
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	Queue(ctx context.Context) (slurm.Queue, error)
	Jobs(ctx context.Context) ([]slurm.Job, error)
	Config(ctx context.Context) (slurm.Config, error)
	RequeueHold(ctx context.Context, id uint32) error
	Hold(ctx context.Context, id uint32) error
	Release(ctx context.Context, id uint32) error
	SetJobGRES(ctx context.Context, id uint32, gres []slurm.GRES) error
	SetAdminComment(ctx context.Context, id uint32, text string) error
}

// Agent is one node's agent.
type Agent struct {
	cfg       Config
	hw        gpu.Hardware
	caps      gpu.Caps
	procs     *gpu.Processes
	searches  searches
	ledger    *ledger.Ledger
	ctl       Controller
	log       *logrus.Entry
	now       func() time.Time
	jobs      keyedLock
	publish   chan chan error
	leftovers chan struct{} // somebody uses an instance that no job has
	profiles  []string      // on offer, over all GPUs, smallest first
	total     int           // N, the node's constant total of gres/mig, 0 until known; the publisher's alone
	// names of other GPU models' profiles that something was on offer as; the publisher's alone
	lent         []string
	unresponsive plan.Unresponsive // the publisher's alone
	unstarted    plan.Unstarted    // likewise
	changed      chan struct{}     // something stands otherwise than was published
	outdated     chan error        // why the agent has to start again
	// allocations are those of jobs on the node that slurmctld has been asked for; the publisher's alone.
	allocations map[uint32]allocation
	// offered is what the last plan had on offer, and offersSince since when; the publisher's alone.
	offered     map[string]int
	offersSince time.Time
	policy      place.Policy
	recordPause time.Duration // before an unclear job record is read again

	slurmMu sync.Mutex
	slurm   *slurm.Config                // slurmctld's configuration, once read
	privacy atomic.Pointer[slurm.Config] // the same as of the last minute; nil until read

	sender  atomic.Pointer[wake.Sender] // nil without a key
	changes atomic.Int64                // writes to slurmctld, all passes together

	mu      sync.Mutex
	cards   []*card
	leases  map[uint32]*api.Lease
	pending map[uint32]*pendingLease
	// unserved are jobs on the node that get neither promise nor slices, with their restart counts.
	unserved map[uint32]int
	former   map[minorsOf]uint32 // the last user of each GPU instance id
	// lastLogged has the keys of the lines that mayLog allowed less than logInterval ago, and when.
	lastLogged map[any]time.Time
	offers     []mig.Layout          // in force, by card: whatever slurmctld may start now is among them
	as         map[offer.Spot]string // what some of them are on offer as
	here       map[uint32]slurm.Job  // the jobs that are on the node, by slurmctld's last account
	reserved   *api.Reservation      // what is kept free here, and for whom
	next       next                  // by the plan in force
	// version counts the changes of all that a plan is made from: a plan is put in force only if it did not change
	// meanwhile.
	version     int
	published   map[string]int
	publishedAt time.Time
	publishErr  error
	closed      string // the node's state if slurmctld starts nothing on it
	// excess is what slurmctld counts as used and has allocated to no job, by profile; short is the part of it that the
	// published totals do not have, because N has no room for it.
	excess, short map[string]int
	stale         []string // profiles that slurm.conf gives the node and the driver does not report

	refusals refusals

	// What jobs use: observe.go, keep.go, recorder.go. Without a repository it is shown, and nothing is kept.
	seen       observer
	clock      func() time.Duration // CLOCK_MONOTONIC
	repo       Repository
	accounting Accounting
	toKeep     chan struct{} // there is something for the keeper
	toRecord   chan struct{} // there is something for the recorder
	repoFailed atomic.Bool   // the repository's last answer was an error
	tookOver   bool          // what an earlier agent left there has been read; the keeper's
	waiting    atomic.Int64  // summaries that slurmdbd does not have yet
	dbdFailed  atomic.Bool   // slurmdbd's failure has been logged
	spoils     sync.Once     // said that a field is another tool's
}

// New discovers the node's GPUs, opens the ledger and repairs what a crash has left. It does not need slurmctld.
func New(cfg Config, hw gpu.Hardware, ctl Controller, log *logrus.Entry) (*Agent, error) {
	a := &Agent{
		cfg: cfg, hw: hw, ctl: ctl, log: log, now: time.Now, caps: gpu.Caps{Dev: cfg.DeviceDir, Proc: cmp.Or(cfg.procDir, "/proc")}, procs: cmp.Or(cfg.procs, &gpu.Processes{Proc: "/proc"}), former: map[minorsOf]uint32{}, lastLogged: map[any]time.Time{},
		publish: make(
			chan chan error,
		), changed: make(chan struct{}, 1), outdated: make(chan error, 1), offersSince: time.Now(), unresponsive: plan.Unresponsive{Patience: plan.Patience(cfg.PollInterval)}, leftovers: make(chan struct{}, 1), leases: map[uint32]*api.Lease{}, pending: map[uint32]*pendingLease{}, unserved: map[uint32]int{}, allocations: map[uint32]allocation{},
		seen: observer{
			open: map[uint32]*observation{},
		}, clock: monotonic, toKeep: make(chan struct{}, 1), toRecord: make(chan struct{}, 1),
		recordPause: recordPause,
	}
	var err error
	if a.policy, err = place.ByName(cmp.Or(cfg.Policy, place.DefaultPolicy)); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if err := a.caps.Prepare(); err != nil {
		log.WithError(err).Error("couldn't make the capability files that changing instances needs")
	}
	found, err := hw.GPUs()
	if err != nil {
		return nil, err
	}
	if a.cards, a.profiles, err = inventory(found, cfg.Profiles); err != nil {
		return nil, err
	}
	if d := cfg.DefaultProfile; d != "" && len(a.profiles) > 0 && !slices.Contains(a.profiles, d) {
		return nil, fmt.Errorf(
			"default_profile: no GPU of this node puts %q on offer; it has %s",
			d,
			strings.Join(a.profiles, ", "),
		)
	}
	a.offers = make([]mig.Layout, len(a.cards))
	for _, c := range a.cards {
		if c.Problem != "" {
			log.WithField("gpu", c.Index).Error("not managed: " + c.Problem)
		}
	}
	if a.ledger, err = ledger.Open(filepath.Join(cfg.StateDir, "ledger.db")); err != nil {
		return nil, err
	}
	if err := a.start(); err != nil {
		a.ledger.Close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) start() error {
	rebooted, err := a.load()
	if err != nil {
		return err
	}
	if !rebooted {
		if err := a.recoverLeases(); err != nil {
			return err
		}
	}
	if err := a.compareGPUs(); err != nil {
		a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
	}
	a.closeIdle()
	for _, l := range a.leases {
		a.observe(*l)
	}
	total, err := a.ledger.Meta("total")
	if err != nil {
		return err
	}
	a.total, _ = strconv.Atoi(total) // 0 until slurmctld has been asked
	lent, err := a.ledger.Meta("lent")
	if err != nil {
		return err
	}
	a.lent = strings.Fields(lent)
	if err := a.makeSlots(); err != nil {
		return err
	}
	return a.prepareRunDir()
}

func (a *Agent) slotCount() int {
	n := 0
	for _, c := range a.cards {
		n += len(c.slots)
	}
	return n
}

// defaultProfile is the size of a job that has none: the configured one, else the largest.
func (a *Agent) defaultProfile() string {
	if a.cfg.DefaultProfile != "" {
		return a.cfg.DefaultProfile
	}
	if len(a.profiles) == 0 {
		return ""
	}
	return a.profiles[len(a.profiles)-1]
}

// stopTimeout is how long calls that are being served may take when the agent is told to stop. A prolog that is cut off
// asks again: what it asked for is in the ledger or undone at the next start.
const stopTimeout = 5 * time.Second

// Run serves until ctx ends. It returns an error if the agent cannot go on as it was started.
func (a *Agent) Run(ctx context.Context) error {
	defer a.ledger.Close()
	listener, err := api.Listen(a.cfg.RunDir)
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
	samplers := a.sampleAll(working)
	defer func() {
		stop()
		tasks.Wait()
		samplers()
		if a.repo != nil {
			a.keep(true)
		}
	}()
	tasks.Go(func() { a.publisher(working) })
	tasks.Go(func() { a.reconciler(working) })
	if a.repo != nil {
		tasks.Go(func() { a.keeper(working) })
		tasks.Go(func() { a.recorder(working) })
	}
	if a.cfg.WakePort > 0 {
		tasks.Go(func() { a.listen(working) })
	}
	failed := make(chan error, 2)
	tasks.Go(func() { failed <- server.Serve(listener) })
	tasks.Go(func() { failed <- server.Serve(rootListener) })
	daemon.SdNotify(false, daemon.SdNotifyReady)
	a.log.WithField("gpus", len(a.cards)).WithField("slots", a.slotCount()).Info("ready")
	go a.Publish(working) // at once, not at the first poll
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
		a.log.WithError(err).Warn("calls were cut off; they will be repeated")
	}
	return why
}

// warnings takes what net/http has to say.
type warnings struct{ *logrus.Entry }

func (w warnings) Write(p []byte) (int, error) {
	w.Warn(strings.TrimSpace(string(p)))
	return len(p), nil
}

// reconciler compares the three truths, soon after the start and then every minute, and publishes what follows.
func (a *Agent) reconciler(ctx context.Context) {
	compare := time.After(retryInterval)
	var again <-chan time.Time // somebody uses an instance that no job has
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.leftovers:
			if again == nil {
				again = time.After(lingerInterval)
			}
			continue
		case <-again:
			a.lookAgain(ctx)
		case <-compare:
			compare = time.After(reconcileInterval)
			a.learnPrivacy(ctx)
			if err := errors.Join(a.compareGPUs(), a.Publish(ctx), a.releaseGone(ctx)); err != nil && ctx.Err() == nil {
				a.log.WithError(err).Warn("couldn't compare GPU, ledger and slurmctld; trying again")
				compare = time.After(5 * retryInterval)
			}
		}
		if again = nil; a.hasLeftovers() {
			again = time.After(lingerInterval)
		}
	}
}

// keyedLock serialises the calls for one job.
type keyedLock struct {
	mu   sync.Mutex
	held map[uint32]*keyed
}

type keyed struct {
	mu    sync.Mutex
	users int
}

// lock takes the lock of a key and answers how to give it back.
func (k *keyedLock) lock(key uint32) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[uint32]*keyed{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyed{}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		if l.users--; l.users == 0 {
			delete(k.held, key)
		}
		k.mu.Unlock()
	}
}

func ledgerInstances(held []*instance) []ledger.Instance {
	all := make([]ledger.Instance, len(held))
	for i, in := range held {
		all[i] = in.Instance
	}
	return all
}
