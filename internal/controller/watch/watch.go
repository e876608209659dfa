package watch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"caelum/internal/controller/notify"
	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// Config is the configuration of a watcher.
type Config struct {
	TriggerFile   string        // the file that job_submit.lua writes to
	NotifyPort    int           // the UDP port of agents and watcher; if 0, the watcher sends and accepts no datagrams
	NotifyAddress string        // the address on which datagrams are received; if empty, all addresses of the host
	Name          string        // the name of this host
	NotifyKey     string        // the path of the key file; if it does not exist, munge authenticates datagrams
	Interval      time.Duration // the time between reads when there are no notifications or submissions
	Settings      plan.Settings // the settings of the agents
	Planner       bool          // whether the watcher writes each node's part of the plan to the node's Comment
	// If this watcher is the active planner, it uses Preemptor to stop running jobs for waiting jobs that need other
	// profiles: with Preempt, the jobs that Slurm's rules allow it to preempt, and with Moves, jobs that fit elsewhere.
	Preemptor Preemptor
	Preempt   bool
	Moves     Moves
	// Now, if set, replaces the clock that measures the age of heartbeats; only tests set it.
	Now func() time.Time
	// Send and Confirm, if set, are called instead of sending a notification or a confirmation to the node's agent;
	// only tests set them.
	Send    func(node slurm.Node) error
	Confirm func(node slurm.Node, text string) error
}

// Slurmctld is the set of slurmctld calls that the watcher uses. *slurm.Client implements it.
type Slurmctld interface {
	slurm.Lister
	Node(ctx context.Context, name string) (slurm.Node, error)
	SetNodeComment(ctx context.Context, node, text string) error
	SetNodeGRES(ctx context.Context, node string, gres slurm.GRESList) error
	HideNode(ctx context.Context, node string) error
	Config(ctx context.Context) (slurm.Config, error)
}

const (
	// retry is the pause before the next attempt if slurmctld did not reply.
	retry = time.Second
	// slowdown is the pause after a read, as a multiple of the duration of the read.
	slowdown = 4
	// roundTime limits the time that rounds take while jobs start and end continuously, in milliseconds per second: on
	// 1,024 nodes, a round costs slurmctld 7 ms of CPU time. After a quiet period, rounds may take burstTime, in
	// milliseconds, without this limit. Rounds that take longer than 0.2 s exceed the limit because of maxPause.
	roundTime = 100
	burstTime = 500
	// maxConfirming limits the time for sending confirmations in a round.
	maxConfirming = time.Second
	// maxPause limits the pause after a slow read, which may have been slow only because slurmctld was starting.
	maxPause = 2 * time.Second
)

// Watcher queries slurmctld and notifies agents as described in the package comment.
type Watcher struct {
	cfg           Config
	ctl           Slurmctld
	log           *logrus.Entry
	notifications notifications
	deadlines     deadlines
	planner       *planner                          // nil unless the watcher writes parts
	preemption    *preemption                       // nil unless the watcher preempts or moves jobs
	config        slurm.Config                      // slurmctld's configuration, for the confirmations
	configRead    time.Time                         // the time at which config was read
	hideNext      time.Time                         // the earliest time for the next attempt to hide catalogue nodes
	sender        atomic.Pointer[notify.Sender]     // nil until listen knows how datagrams are authenticated
	sent          atomic.Int64                      // number of notifications sent
	hosts         atomic.Pointer[map[string]string] // each managed node's address according to slurmctld
}

// New returns a watcher. slurmctld and the trigger file need not be available yet.
func New(cfg Config, ctl Slurmctld, log *logrus.Entry) *Watcher {
	w := &Watcher{
		cfg:       cfg,
		ctl:       ctl,
		log:       log,
		deadlines: deadlines{},
		notifications: notifications{
			settings:     cfg.Settings,
			unresponsive: plan.Unresponsive{Patience: plan.Patience(cfg.Interval)},
		},
	}
	if cfg.Planner {
		w.cfg.Interval = min(cfg.Interval, part.Every)
		w.planner = newPlanner(ctl, log, cfg.Name, cfg.Now)
		if cfg.Preempt || cfg.Moves.PerDay > 0 {
			w.preemption = &preemption{
				ctl: cfg.Preemptor, log: log, preempts: cfg.Preempt, moves: newMoves(cfg.Moves, log),
			}
		}
	}
	return w
}

// Run watches the trigger file until ctx is done. If Run cannot start or continue, it returns an error that explains
// why.
func (w *Watcher) Run(ctx context.Context) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer events.Close()
	if err := w.makeFile(); err != nil {
		return err
	}
	if err := events.Add(filepath.Dir(w.cfg.TriggerFile)); err != nil {
		return err
	}
	daemon.SdNotify(false, daemon.SdNotifyReady)
	w.log.WithField("file", w.cfg.TriggerFile).Info("watching")
	published := make(chan struct{})
	if w.cfg.NotifyPort > 0 {
		go w.listen(ctx, published)
	}
	next, earliest := time.NewTimer(0), time.Time{}
	limit := rate.NewLimiter(roundTime, burstTime)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events.Events:
			if !ok {
				return errors.New("the watch on the trigger file " + w.cfg.TriggerFile + " has ended")
			}
			if e.Name == w.cfg.TriggerFile && e.Has(fsnotify.Write) {
				next.Reset(max(0, time.Until(earliest)))
			}
			continue
		case <-published:
			next.Reset(max(0, time.Until(earliest)))
			continue
		case err := <-events.Errors:
			w.log.WithError(err).Warn("couldn't watch the trigger file; the watcher may notice some submissions late")
			continue
		case <-next.C:
		}
		began := time.Now()
		again, err := w.Round(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.log.WithError(err).Warn(
					"the watcher's round failed; the agents plan for themselves until a round succeeds")
			}
			next.Reset(retry)
			continue
		}
		pause := pauseAfter(time.Since(began), limit)
		earliest = time.Now().Add(pause)
		next.Reset(max(pause, w.cfg.Interval))
		if again {
			next.Reset(max(pause, retry))
		}
	}
}

// pauseAfter returns the minimum pause after a round that took the given time, which it deducts from the limit. The
// debt is at most burstTime, so that the pauses soon become shorter after slurmctld was slow.
func pauseAfter(took time.Duration, limit *rate.Limiter) time.Duration {
	n := min(int(took.Milliseconds()), burstTime, burstTime+int(limit.Tokens()))
	debt := limit.ReserveN(time.Now(), max(n, 0)).Delay()
	return min(max(debt, slowdown*took), maxPause)
}

// listen receives the datagrams from agents that have published. Before that, it waits for slurmctld's configuration,
// which says how datagrams are authenticated, and starts a round that can send datagrams.
func (w *Watcher) listen(ctx context.Context, published chan<- struct{}) {
	c, err := w.ctl.Config(ctx)
	for ; err != nil && ctx.Err() == nil; c, err = w.ctl.Config(ctx) {
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
	if ctx.Err() != nil {
		return
	}
	auth, err := notify.WatcherAuth(w.cfg.NotifyKey, c)
	if err != nil {
		w.log.WithError(err).Error("the wake port was not opened; agents receive no notifications of submissions")
		return
	}
	sender := &notify.Sender{Auth: auth, Name: notify.Watcher + w.cfg.Name, Address: w.cfg.NotifyAddress}
	w.sender.Store(sender)
	select {
	case published <- struct{}{}:
	case <-ctx.Done():
	}
	l := notify.Listener{
		Auth: auth, Name: notify.Watcher, Address: w.cfg.NotifyAddress, Port: w.cfg.NotifyPort, MaxPause: maxPause,
		Sender: sender,
		Hosts: func(node string) []string {
			if hosts := w.hosts.Load(); hosts != nil && (*hosts)[node] != "" {
				return []string{(*hosts)[node]}
			}
			return nil
		},
		Refused: func(n int, from netip.AddrPort, reason string) {
			w.log.WithField("datagrams", n).
				WithField("from", from).
				WithField("reason", reason).
				Warn("rejected datagrams to the wake port")
		},
	}
	seen := w.sent.Load()
	err = l.Listen(ctx, func() bool {
		select {
		case published <- struct{}{}:
		case <-ctx.Done():
		}
		now := w.sent.Load() // does not include the datagrams that Run will send in response
		changed := now != seen
		seen = now
		return changed
	})
	if err != nil {
		w.log.WithError(err).
			Error("couldn't listen for notifications from agents; other agents may react late when a node frees " +
				"a slice")
	}
}

// Round queries slurmctld, writes the parts of the plan if the watcher is a planner, preempts jobs if configured to do
// so, and notifies the nodes in the notification set. again is true if the next round must not wait for the poll
// interval.
func (w *Watcher) Round(ctx context.Context) (again bool, err error) {
	if err := w.makeFile(); err != nil {
		w.log.WithError(err).
			Error("couldn't create the trigger file for job_submit.lua; the watcher will notice submissions late")
	}
	if !w.notifies() && w.planner == nil {
		return false, nil
	}
	read := time.Now() // earlier than snapshot.At, which is the time after the reads
	nodes, queue, err := slurm.List(ctx, w.ctl)
	if err != nil {
		return false, fmt.Errorf("couldn't read the nodes and the queue: %w", err)
	}
	snapshot := plan.Snapshot{Nodes: nodes, Queue: queue, At: time.Now()}
	hosts := map[string]string{}
	for _, n := range snapshot.Nodes {
		if n.Managed() { // on other nodes, no agent is running, so that users can open the notification port
			hosts[n.Name] = n.Addr
		}
	}
	w.hosts.Store(&hosts)
	if err := w.hideCatalogue(ctx, snapshot.Nodes, snapshot.At); err != nil {
		w.log.Warn(err)
	}
	v, made := w.notifications.plan(snapshot)
	w.deadlines.report(snapshot, v, made, w.log)
	if w.planner != nil {
		active := w.planner.active(snapshot)
		if w.preemption != nil && !active {
			w.preemption.moves.delay(snapshot.At)
		}
		if err = w.planner.write(ctx, snapshot, v, made, &w.notifications); err != nil {
			err = fmt.Errorf("couldn't write the plan: %w", err)
		} else if active {
			if err = w.planner.offerPoweredDown(ctx, snapshot, v, made); err != nil {
				err = fmt.Errorf("couldn't write the offers of nodes that are powered down: %w", err)
			}
			if w.preemption != nil {
				again = w.preemption.round(ctx, snapshot, v, made)
			}
		}
	}
	if w.notifies() {
		var waits deferred
		if w.planner != nil {
			waits = w.planner.deferred
		}
		for _, n := range w.notifications.due(snapshot, v, made, waits) {
			w.notify(n)
		}
		w.confirmRecords(ctx, read)
	}
	return again, err
}

// confirmRecords sends a confirmation to each member's agent after a heartbeat. For a node in the notification set, the
// confirmation contains NoRecord, so the agent does not omit its next poll, in which it tries again to match the plan.
// It sends no more confirmations if the records were read more than part.Every ago, for example because the process was
// stopped, or if sending takes longer than maxConfirming, for example because a name server does not respond to first
// lookups. It sends none if it could not read slurmctld's configuration.
func (w *Watcher) confirmRecords(ctx context.Context, read time.Time) {
	if w.planner == nil || len(w.planner.written) == 0 || !w.readConfig(ctx) {
		return
	}
	began := time.Now()
	for _, n := range w.planner.written {
		text := part.Confirmation(w.planner.own(), part.Digest(n, w.config))
		if _, notified := w.notifications.notified[n.Name]; notified {
			text = part.Confirmation(w.planner.own(), part.NoRecord)
		}
		if time.Since(read) > part.Every || time.Since(began) > maxConfirming {
			return
		}
		if err := w.confirm(n, text); err != nil {
			w.log.WithField("node", n.Name).WithError(err).Debug("couldn't confirm a node's record")
		}
	}
}

// readConfig reads slurmctld's configuration if the last reading is readRules old. It reports whether the configuration
// is known.
func (w *Watcher) readConfig(ctx context.Context) bool {
	if now := w.planner.now(); now.Sub(w.configRead) >= readRules {
		c, err := w.ctl.Config(ctx)
		if err != nil {
			w.log.WithError(err).Warn(
				"couldn't read slurmctld's configuration; the agents do not omit their polls")
			return false
		}
		w.config, w.configRead = c, now
	}
	return true
}

// notifies reports whether the watcher can send datagrams.
func (w *Watcher) notifies() bool { return w.cfg.Send != nil || w.sender.Load() != nil }

func (w *Watcher) send(n slurm.Node) error {
	if w.cfg.Send != nil {
		return w.cfg.Send(n)
	}
	return w.sender.Load().Send(n.Name, n.Addr, w.cfg.NotifyPort)
}

func (w *Watcher) confirm(n slurm.Node, text string) error {
	if w.cfg.Confirm != nil {
		return w.cfg.Confirm(n, text)
	}
	return w.sender.Load().Confirm(n.Name, n.Addr, w.cfg.NotifyPort, text)
}

func (w *Watcher) notify(n slurm.Node) {
	log := w.log.WithField("node", n.Name)
	if err := w.send(n); err != nil {
		log.WithError(err).Warn("couldn't notify an agent")
		return
	}
	w.sent.Add(1)
	log.Debug("agent notified")
}

// makeFile creates the trigger file if it does not exist. Only the file's owner, which must be slurmctld's user, can
// write to it.
func (w *Watcher) makeFile() error {
	f, err := os.OpenFile(w.cfg.TriggerFile, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w; the watcher's systemd unit creates the directory", err)
	}
	return f.Close()
}
