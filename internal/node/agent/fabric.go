package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// On systems with NVSwitches, a GPU whose MIG mode has been switched off can be used only after it has registered with
// the fabric (package gpu). The agent therefore grants a full GPU only after it has registered. While an idle full GPU
// has not registered, for example because Fabric Manager is not running, the agent does not offer it as a full GPU,
// checks it at every comparison, and may switch MIG mode on again to use it for slices.

const (
	// fabricLimit limits the time that a prolog waits for a full GPU to register. It is shorter than a prolog's default
	// wait (60 s), and switching the mode takes a few seconds.
	fabricLimit = 30 * time.Second
	// fabricPoll is the time between two queries of the state.
	fabricPoll = 500 * time.Millisecond
)

// awaitFabric waits until the full GPUs among a job's carved instances have registered with the fabric. It returns an
// error if one of them has not registered within fabricLimit, or when ctx is done.
func (a *Agent) awaitFabric(ctx context.Context, spots []offer.Spot, made []*state.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, a.fabricLimit)
	defer cancel()
	var all error
	for k, s := range spots {
		if made[k].GI == gpu.FullGI {
			err := a.registered(ctx, s.GPU)
			a.noteFabric(s.GPU, err)
			all = errors.Join(all, err)
		}
	}
	return all
}

// registered waits until a full GPU has registered with the fabric or ctx is done.
func (a *Agent) registered(ctx context.Context, g int) error {
	for {
		err := a.hw.Fabric(g)
		if !errors.Is(err, gpu.ErrFabric) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(fabricPoll):
		}
	}
}

// checkFabric checks whether an idle full GPU has registered.
func (a *Agent) checkFabric(g int, c *state.Card) {
	a.node.Lock()
	idle := c.IdleFull()
	a.node.Unlock()
	if idle {
		a.noteFabric(g, a.hw.Fabric(g))
	}
}

// noteFabric records whether a full GPU can be used. err is the result of gpu.Hardware.Fabric.
func (a *Agent) noteFabric(g int, err error) {
	c := a.node.Cards[g]
	reason := ""
	if err != nil {
		reason = fmt.Sprintf("%v; check that nvidia-fabricmanager.service is running (`nvidia-smi -q -i %d` shows the "+
			"state under Fabric)", err, c.Index)
	}
	a.node.Lock()
	before := c.Unregistered
	if c.Unregistered = reason; reason != before {
		a.node.Version++
		c.PlanWithoutFull()
	}
	a.node.Unlock()
	switch {
	case reason == before:
	case reason != "":
		a.log.WithField("gpu", g).Warn("the full GPU is not offered: " + reason)
	default:
		a.log.WithField("gpu", g).Info("the full GPU has registered with the fabric")
	}
}
