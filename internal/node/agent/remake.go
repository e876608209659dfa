package agent

import (
	"errors"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/failpoint"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
)

// A process can close an instance's capability files after it has subscribed to the compute instance, and can still use
// it. Neither a scan of /proc nor the driver's list of processes shows such a process while it is inactive. The driver
// itself counts subscriptions, and refuses to destroy a compute instance that has any. Between two users, the agent
// therefore destroys an instance's compute instance and creates a new one, in the prolog or, in most cases, earlier.

// remakePause is the time between a release and the re-creation of compute instances. It lets the next job start first,
// because a job of the same user can use the compute instance as it is.
const remakePause = time.Second

// remakeSoon makes the reconciler call remakeIdle after remakePause.
func (a *Agent) remakeSoon() {
	select {
	case a.remakes <- struct{}{}:
	default: // the reconciler has already been notified
	}
}

// remakeIdle re-creates the compute instances of all idle instances that need it, except those at the spots of pending
// leases.
func (a *Agent) remakeIdle() {
	before := a.stateVersion()
	for g, c := range a.node.Cards {
		var stale []*state.Instance
		a.node.Lock()
		for _, in := range c.Ours {
			if c.Problem == "" && in.Idle() && in.Stale() {
				stale = append(stale, in)
			}
		}
		a.node.Unlock()
		for _, in := range stale {
			if err := a.remakeOne(g, in); err != nil {
				a.log.WithError(err).WithField("gpu", g).WithField("uuid", in.UUID).
					Warnf("couldn't re-create the compute instance of %s at %d", in.Profile, in.Start)
			}
		}
	}
	if a.stateVersion() != before {
		a.publisher.Soon()
	}
}

// remakeOne re-creates the compute instance of an instance that was idle.
func (a *Agent) remakeOne(g int, in *state.Instance) error {
	c := a.node.Cards[g]
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	p, ok := c.Model.Placement(in.Profile, in.Start)
	a.node.Lock()
	ready := ok && c.Ours[p] == in && in.Idle() && in.Stale() && !a.node.Promised(offer.Spot{GPU: g, Placement: p})
	a.node.Unlock()
	if !ready {
		return nil
	}
	if used, err := a.inUse(g, in); used || err != nil {
		return err
	}
	if exists, err := a.confirm(g, in, new(spent)); !exists || err != nil {
		return err
	}
	made, err := a.remake(g, in, new(spent))
	if err == nil && a.caps.Modifies() {
		_, err = a.setHeldAside([]placed{{g, made}}) // all users could open the new file for a moment
	}
	return err
}

// remake re-creates the compute instance of an idle instance, and returns the instance that replaces it. If the driver
// refuses to destroy the compute instance, the instance is stuck. If the driver cannot create the new one, remake
// destroys the GPU instance. The intent in the ledger is that of a destroy: after a crash, a GPU instance without a
// compute instance is destroyed, and one with a new compute instance becomes idle. The caller holds the card's hardware
// lock.
func (a *Agent) remake(g int, in *state.Instance, t *spent) (*state.Instance, error) {
	c := a.node.Cards[g]
	intent, err := a.ledger.Begin(ledger.Intent{
		Op: ledger.OpDestroy, GPU: c.UUID, GI: in.GI, Profile: in.Profile, Start: in.Start, Size: in.Size,
	})
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.RemakeIntended)
	asked := time.Now()
	made, err := a.hw.Remake(g, a.node.HardwareOf(in))
	add(&t.driver, asked)
	switch {
	case errors.Is(err, gpu.ErrInUse):
		return nil, errors.Join(usedError(g, in), err, a.refused(g, in, err), a.ledger.Failed(intent))
	case errors.Is(err, gpu.ErrNotFound): // another program has destroyed the GPU instance
		return nil, errors.Join(err, a.forgetGone(g, in), a.ledger.Failed(intent))
	case err != nil:
		// destroy writes its own intent, so this one can be settled. If destroy fails, the instance is stuck.
		return nil, errors.Join(err, a.destroy(g, in, t), a.ledger.Failed(intent))
	}
	failpoint.Hit(failpoint.Remade)
	p, _ := c.Model.Placement(in.Profile, in.Start)
	return a.settleFresh(offer.Spot{GPU: g, Placement: p}, intent, made, failpoint.RemakeSettled)
}
