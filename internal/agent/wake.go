package agent

import (
	"context"

	"caelum/internal/wake"
)

// listen makes a pass when the watcher says so.
func (a *Agent) listen(ctx context.Context) {
	// What goes wrong with a pass is logged and tried again by the publisher.
	err := wake.Listen(ctx, a.cfg.WakeAddress, a.cfg.WakePort, func() { a.Publish(ctx) })
	if err != nil {
		a.log.WithError(err).Error("couldn't listen for the watcher; looking at the queue every " + a.cfg.PollInterval.String() + " only")
	}
}

// wakeWatcher tells the watcher, which is where slurmctld is, that something stands otherwise here.
func (a *Agent) wakeWatcher() {
	if a.cfg.WakePort == 0 {
		return
	}
	a.slurmMu.Lock()
	var hosts []string
	if a.slurm != nil {
		hosts = a.slurm.Controllers()
	}
	a.slurmMu.Unlock()
	for _, host := range hosts {
		if err := wake.Send(host, a.cfg.WakePort); err != nil {
			a.log.WithError(err).WithField("host", host).Debug("couldn't tell the watcher to look")
		}
	}
}
