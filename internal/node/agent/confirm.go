package agent

import (
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// confirm reports whether an idle instance is still on its GPU and unchanged. An administrator can remove an instance
// with `nvidia-smi mig -dci` and `-dgi`. If only the compute instance is gone, confirm destroys the GPU instance. If
// the GPU instance is gone too, confirm removes the instance from the ledger but does not touch the GPU, because a new
// instance may have the same id. The caller holds the card's hardware lock.
func (a *Agent) confirm(g int, in *state.Instance, t *spent) (bool, error) {
	made := a.node.HardwareOf(in)
	exists, err := a.hw.Exists(g, made)
	if exists || err != nil {
		return exists, err
	}
	found, err := a.hw.Instances(g)
	if err != nil {
		return false, err
	}
	for _, f := range found {
		switch {
		case f.GI == made.GI && f.UUID == made.UUID && f.Profile == made.Profile && f.Start == made.Start:
			return true, nil // another program has changed the order of the GPU's MIG devices
		case f.GI != made.GI || f.Profile != made.Profile || f.Start != made.Start:
		case len(f.CIs) == 0:
			a.log.WithField("gpu", g).WithField("uuid", in.UUID).Warnf(
				"the compute instance of %s at %d was removed by another program; destroying the GPU instance",
				in.Profile, in.Start)
			return false, a.destroy(g, in, t)
		}
	}
	return false, a.forgetGone(g, in)
}

// forgetGone removes an instance that is no longer on its GPU, first from the ledger and then from memory. It does not
// hold the agent's lock while writing to the ledger.
func (a *Agent) forgetGone(g int, in *state.Instance) error {
	c := a.node.Cards[g]
	a.node.Lock()
	was, reused := in.Instance, c.Reused(in.GI, in)
	a.node.Unlock()
	a.logGone(g, was)
	if !reused {
		if err := a.ledger.Forget(c.UUID, was.GI); err != nil {
			return err
		}
	}
	if was.GI == gpu.FullGI { // another program has switched MIG mode on
		if err := a.shareDevice(c); err != nil {
			return err
		}
	}
	a.node.Lock()
	defer a.node.Unlock()
	for p, other := range c.Ours {
		if other == in {
			delete(c.Ours, p)
		}
	}
	a.node.Version++
	return nil
}
