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

	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"caelum/internal/wake"
)

// Config is what a watcher is told.
type Config struct {
	TriggerFile string        // job_submit.lua writes to it
	WakePort    int           // agents and the watcher listen there, UDP
	Address     string        // where the watcher listens; empty: on all addresses of the host
	Name        string        // this host's
	Key         wake.Key      // nil: the watcher tells nothing to agents and accepts nothing from them
	Interval    time.Duration // between looks that nothing has asked for
	Policy      place.Policy  // the agents'
}

const (
	retry    = time.Second     // after slurmctld has not answered
	slowdown = 4               // a look is not begun before this many times what the last one took, ...
	rest     = 2 * time.Second // ... or this: it may have waited for a slurmctld that was just starting
)

// Watcher tells agents to look.
type Watcher struct {
	cfg           Config
	ctl           plan.Controller
	log           *logrus.Entry
	notifications notifications
	sender        wake.Sender
	sent          atomic.Int64                      // datagrams sent
	hosts         atomic.Pointer[map[string]string] // by node: its address as slurmctld has it
}

// New makes a watcher. It needs neither slurmctld nor the file yet.
func New(cfg Config, ctl plan.Controller, log *logrus.Entry) *Watcher {
	return &Watcher{
		cfg:    cfg,
		ctl:    ctl,
		log:    log,
		sender: wake.Sender{Key: cfg.Key, Name: wake.Watcher + cfg.Name, Address: cfg.Address},
		notifications: notifications{
			policy:       cfg.Policy,
			unresponsive: plan.Unresponsive{Patience: plan.Patience(cfg.Interval)},
		},
	}
}

// Run watches until ctx ends. The error says why it cannot begin.
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
	if w.cfg.Key != nil {
		go w.listen(ctx, published)
	}
	next, earliest := time.NewTimer(0), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events.Events:
			if !ok {
				return errors.New("the watch on " + w.cfg.TriggerFile + " has ended")
			}
			if e.Name == w.cfg.TriggerFile && e.Has(fsnotify.Write) {
				next.Reset(max(0, time.Until(earliest)))
			}
			continue
		case <-published:
			next.Reset(max(0, time.Until(earliest)))
			continue
		case err := <-events.Errors:
			w.log.WithError(err).Warn("some submissions may be seen late")
			continue
		case <-next.C:
		}
		began := time.Now()
		if err := w.check(ctx); err != nil {
			if ctx.Err() == nil {
				w.log.WithError(err).Warn("couldn't look at the queue; agents look by themselves meanwhile")
			}
			next.Reset(retry)
			continue
		}
		pause := min(slowdown*time.Since(began), rest)
		earliest = time.Now().Add(pause)
		next.Reset(w.cfg.Interval)
	}
}

// listen accepts datagrams of agents that have published. Without them the watcher sees submissions only.
func (w *Watcher) listen(ctx context.Context, published chan<- struct{}) {
	l := wake.Listener{
		Key: w.cfg.Key, Name: wake.Watcher, Address: w.cfg.Address, Port: w.cfg.WakePort, MaxPause: rest,
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
				Warn("datagrams to the wake port refused")
		},
	}
	seen := w.sent.Load()
	err := l.Listen(ctx, func() bool {
		select {
		case published <- struct{}{}:
		case <-ctx.Done():
		}
		now := w.sent.Load() // of the reactions before: this one is still to come
		changed := now != seen
		seen = now
		return changed
	})
	if err != nil {
		w.log.WithError(err).
			Error("couldn't listen for agents; some look at the queue late when a slice is freed on another node")
	}
}

// look tells whom it concerns.
func (w *Watcher) check(ctx context.Context) error {
	if err := w.makeFile(); err != nil {
		w.log.WithError(err).Error("couldn't make the file that job_submit.lua writes to; submissions are seen late")
	}
	if w.cfg.Key == nil {
		return nil
	}
	snapshot, err := plan.Read(ctx, w.ctl, time.Now)
	if err != nil {
		return err
	}
	hosts := map[string]string{}
	for _, n := range snapshot.Nodes {
		hosts[n.Name] = n.Addr
	}
	w.hosts.Store(&hosts)
	for _, n := range w.notifications.next(snapshot) {
		w.notify(n)
	}
	return nil
}

func (w *Watcher) notify(n slurm.Node) {
	log := w.log.WithField("node", n.Name)
	if err := w.sender.Send(n.Name, n.Addr, w.cfg.WakePort); err != nil {
		log.WithError(err).Warn("couldn't tell an agent to look")
		return
	}
	w.sent.Add(1)
	log.Debug("told to look")
}

// makeFile makes the file where it is missing: for its owner alone, who must be slurmctld's user.
func (w *Watcher) makeFile() error {
	f, err := os.OpenFile(w.cfg.TriggerFile, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w; the watcher's unit makes its folder", err)
	}
	return f.Close()
}
