package agent

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"time"

	"caelum/internal/slurm"
	"caelum/internal/wake"
)

// maxWakePause bounds the pause between passes that the watcher asks for and that change nothing.
const maxWakePause = 15 * time.Second

// listen makes a pass when the watcher asks for it. The key file is read once slurmctld has told its configuration.
func (a *Agent) listen(ctx context.Context) {
	for ctx.Err() == nil && a.knownConfig() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
	c := a.knownConfig()
	if c == nil {
		return
	}
	key, err := readWakeKey(a.cfg, *c)
	if err != nil {
		a.log.WithError(err).WithField("poll_interval", a.cfg.PollInterval).
			Warn("wake port not opened: the queue is polled only")
		return
	}
	a.sender.Store(&wake.Sender{Key: key, Name: a.cfg.Node, Address: a.cfg.WakeAddress})
	l := wake.Listener{
		Key: key, Name: a.cfg.Node, Address: a.cfg.WakeAddress, Port: a.cfg.WakePort,
		MaxPause: min(a.cfg.PollInterval, maxWakePause),
		Hosts: func(sender string) []string {
			if !strings.HasPrefix(sender, wake.Watcher) {
				return nil
			}
			return c.Controllers()
		},
		Refused: func(n int, from netip.AddrPort, reason string) {
			a.log.WithField("datagrams", n).WithField("from", from).WithField("reason", reason).
				Warn("datagrams to the wake port refused")
		},
	}
	// What goes wrong with a pass is logged and tried again by the publisher.
	seen := a.changes.Load()
	err = l.Listen(ctx, func() bool {
		a.Publish(ctx)
		now := a.changes.Load()
		changed := now != seen
		seen = now
		return changed
	})
	if err != nil {
		a.log.WithError(err).WithField("poll_interval", a.cfg.PollInterval).
			Error("couldn't listen for the watcher; the queue is polled only")
	}
}

// readWakeKey reads the key file, which must be this process's user's, or SlurmUser's where the watcher runs on the
// same host.
func readWakeKey(cfg Config, c slurm.Config) (wake.Key, error) {
	owners := []uint32{uint32(os.Geteuid())}
	if uid, ok := c.SlurmUser(); ok {
		owners = append(owners, uid)
	}
	return wake.ReadKey(cfg.WakeKey, owners...)
}

// knownConfig is slurmctld's configuration, nil until it has been read.
func (a *Agent) knownConfig() *slurm.Config {
	a.slurmMu.Lock()
	defer a.slurmMu.Unlock()
	return a.slurm
}

// wakeWatcher tells the watcher, which is on slurmctld's host, that this node has published a change.
func (a *Agent) wakeWatcher() {
	sender, c := a.sender.Load(), a.knownConfig()
	if sender == nil || c == nil {
		return
	}
	for _, host := range c.Controllers() {
		if err := sender.Send(wake.Watcher, host, a.cfg.WakePort); err != nil {
			a.log.WithError(err).WithField("host", host).Debug("couldn't tell the watcher to look")
		}
	}
}
