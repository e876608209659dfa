package watch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	"caelum/internal/slurm"
)

// Controller is what the watcher needs of slurmctld; *slurm.Client is the real one.
type Controller interface {
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Waiting(ctx context.Context) ([]slurm.Waiting, error)
}

// Config is what a watcher is told.
type Config struct {
	PokeFile string        // job_submit.lua writes to it
	WakePort int           // agents listen there, UDP
	Interval time.Duration // between looks that nothing has asked for
}

const (
	patience = 300 * time.Millisecond // before a job's next node is told
	retry    = time.Second            // after slurmctld has not answered
	slowdown = 4                      // a look is not begun before this many times what the last one took, ...
	rest     = 2 * time.Second        // ... or this: it may have waited for a slurmctld that was just starting
)

// Watcher tells agents to look.
type Watcher struct {
	cfg     Config
	ctl     Controller
	log     *logrus.Entry
	concern concern
}

// New makes a watcher. It needs neither slurmctld nor the file yet.
func New(cfg Config, ctl Controller, log *logrus.Entry) *Watcher {
	return &Watcher{cfg: cfg, ctl: ctl, log: log}
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
	if err := events.Add(filepath.Dir(w.cfg.PokeFile)); err != nil {
		return err
	}
	daemon.SdNotify(false, daemon.SdNotifyReady)
	w.log.WithField("file", w.cfg.PokeFile).Info("watching")
	next, earliest := time.NewTimer(0), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events.Events:
			if !ok {
				return errors.New("the watch on " + w.cfg.PokeFile + " has ended")
			}
			if e.Name == w.cfg.PokeFile && e.Has(fsnotify.Write) {
				next.Reset(max(0, time.Until(earliest)))
			}
			continue
		case err := <-events.Errors:
			w.log.WithError(err).Warn("some submissions may be seen late")
			continue
		case <-next.C:
		}
		began := time.Now()
		wait, err := w.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.log.WithError(err).Warn("couldn't look at the queue; agents look by themselves meanwhile")
			}
			next.Reset(retry)
			continue
		}
		pause := min(slowdown*time.Since(began), rest)
		earliest = time.Now().Add(pause)
		next.Reset(max(wait, pause))
	}
}

// look tells whom it concerns, and answers how long the next look has time.
func (w *Watcher) look(ctx context.Context) (time.Duration, error) {
	if err := w.makeFile(); err != nil {
		w.log.WithError(err).Error("couldn't make the file that job_submit.lua writes to; submissions are seen late")
	}
	nodes, err := w.ctl.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	waiting, err := w.ctl.Waiting(ctx)
	if err != nil {
		return 0, err
	}
	wake, more := w.concern.next(nodes, waiting)
	for _, n := range wake {
		w.tell(n)
	}
	if more {
		return patience, nil
	}
	return w.cfg.Interval, nil
}

func (w *Watcher) tell(n slurm.Node) {
	log := w.log.WithField("node", n.Name)
	if err := w.datagram(n.Addr); err != nil {
		log.WithError(err).Warn("couldn't tell an agent to look")
		return
	}
	log.Debug("told to look")
}

// datagram says "look now" to the agent at an address. It has no content.
func (w *Watcher) datagram(addr string) error {
	conn, err := net.Dial("udp", net.JoinHostPort(addr, strconv.Itoa(w.cfg.WakePort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(nil)
	return err
}

// makeFile makes the file where it is missing: for its owner alone, who must be slurmctld's user.
func (w *Watcher) makeFile() error {
	f, err := os.OpenFile(w.cfg.PokeFile, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w; the watcher's unit makes its folder", err)
	}
	return f.Close()
}
