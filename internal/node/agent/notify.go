package agent

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"caelum/internal/controller/notify"
	"caelum/internal/node/publish"
	"caelum/internal/slurm"
)

// maxNotifyPause is the maximum time that the agent ignores notifications after passes that were triggered by a
// notification but changed nothing.
const maxNotifyPause = 15 * time.Second

// listen runs a pass for each notification from the watcher until ctx is done. It waits until slurmctld's configuration
// is known, which says how datagrams are authenticated.
func (a *Agent) listen(ctx context.Context) {
	for ctx.Err() == nil && a.knownConfig() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(publish.RetryInterval):
		}
	}
	c := a.knownConfig()
	if c == nil {
		return
	}
	auth, err := notify.AgentAuth(a.cfg.NotifyKey, *c)
	if err != nil {
		a.log.WithError(err).WithField("poll_interval", a.cfg.PollInterval).
			Warn("the wake port was not opened; the agent only polls the queue")
		return
	}
	sender := &notify.Sender{Auth: auth, Name: a.cfg.Node, Address: a.cfg.NotifyAddress}
	a.sender.Store(sender)
	l := notify.Listener{
		Auth: auth, Name: a.cfg.Node, Address: a.cfg.NotifyAddress, Port: a.cfg.NotifyPort, Sender: sender,
		MaxPause: min(a.cfg.PollInterval, maxNotifyPause),
		Hosts: func(sender string) []string {
			if !strings.HasPrefix(sender, notify.Watcher) {
				return nil
			}
			return c.Controllers()
		},
		Refused: func(n int, from netip.AddrPort, reason string) {
			a.log.WithField("datagrams", n).WithField("from", from).WithField("reason", reason).
				Warn("rejected datagrams to the wake port")
		},
		Confirmed: a.publisher.Confirm,
	}
	a.listenAgain(ctx, l)
}

// listenAgain receives notifications until ctx is done. If the port cannot be opened, it tries again with pauses of up
// to portInterval, because another program may have taken the port while the agent was not running.
func (a *Agent) listenAgain(ctx context.Context, l notify.Listener) {
	// If a pass fails, the publisher logs the error and repeats the pass.
	seen := a.publisher.Changes()
	l.Listening = func() {
		if a.deaf.Swap(nil) != nil {
			a.log.WithField("port", a.cfg.NotifyPort).Info("opened the wake port")
		}
	}
	failures := publish.Backoff{First: publish.RetryInterval, Most: portInterval}
	for ctx.Err() == nil {
		err := l.Listen(ctx, func() bool {
			a.Publish(ctx)
			now := a.publisher.Changes()
			changed := now != seen
			seen = now
			return changed
		})
		if err == nil {
			return
		}
		text := err.Error()
		if a.deaf.Swap(&text) == nil {
			a.log.WithError(err).WithField("poll_interval", a.cfg.PollInterval).
				Error("couldn't listen for notifications from the watcher; the agent only polls the queue, and tries " +
					"to open the port at least once a minute")
		}
		select {
		case <-ctx.Done():
		case <-time.After(failures.Pause(err)):
		}
	}
}

// knownConfig returns slurmctld's configuration, or nil if the agent has not read it yet.
func (a *Agent) knownConfig() *slurm.Config {
	a.slurmMu.Lock()
	defer a.slurmMu.Unlock()
	return a.slurm
}

// notifyWatcher notifies the watchers on all slurmctld hosts that this node has published a change.
func (a *Agent) notifyWatcher() {
	sender, c := a.sender.Load(), a.knownConfig()
	if sender == nil || c == nil {
		return
	}
	for _, host := range c.Controllers() {
		if err := sender.Send(notify.Watcher, host, a.cfg.NotifyPort); err != nil {
			a.log.WithError(err).WithField("host", host).Debug("couldn't notify the watcher")
		}
	}
}
