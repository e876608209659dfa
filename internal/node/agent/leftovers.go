package agent

import (
	"context"
	"fmt"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/node/state"
)

// Normally, a job's processes have ended before its epilog runs. However, if a job is cancelled at the end of its
// prolog, its epilog can run while slurmd launches the batch script. In this case, the script runs without an
// allocation. In a test with Slurm 22.05.8, a job was cancelled 32 ms after its lease was granted and released 104 ms
// later, and its script ran for the full 3 s. An instance that is still in use by leftover processes is stuck: the
// agent does not offer its units until the driver no longer reports any processes on it.

// leftoverInterval is the time between checks of the instances that are in use by leftover processes.
const leftoverInterval = 2 * time.Second

// inUse reports whether processes are using an instance, and if so, marks it as stuck. The caller must already have
// restricted the capability files to root, so that no further process can use the instance. If the driver does not list
// the processes, inUse returns false and marks the instance as unlisted.
func (a *Agent) inUse(g int, in *state.Instance) (bool, error) {
	pids, _ := a.processes(g, in)
	if len(pids) == 0 {
		return false, nil
	}
	a.log.WithField("gpu", g).WithField("job", in.Job).WithField("uuid", in.UUID).Warnf(
		"%s at %d is in use by processes %v that belong to no job; "+
			"its units will not be offered until these processes end",
		in.Profile, in.Start, pids)
	return true, a.setAside(g, in, true)
}

// processes lists the processes that are using an instance. The result known is false if the driver cannot list them.
// In this case, the agent does not reuse the instance for another job, but destroys it and creates a new one, because
// the driver refuses to destroy an instance that a process is using.
func (a *Agent) processes(g int, in *state.Instance) (pids []int, known bool) {
	pids, err := a.hw.Processes(g, in.GI)
	a.node.Lock()
	defer a.node.Unlock()
	in.Unlisted = err != nil
	c := a.node.Cards[g]
	if err != nil && !c.Unlisted {
		a.log.WithError(err).
			WithField("gpu", g).
			Warn("couldn't list the processes on a GPU; the agent creates a new instance for each job on this GPU")
	}
	c.Unlisted = err != nil
	return pids, err == nil
}

// unlisted reports whether the last attempt to list the processes of an instance failed.
func (a *Agent) unlisted(in *state.Instance) bool {
	a.node.Lock()
	defer a.node.Unlock()
	return in.Unlisted
}

// setAside marks an instance as stuck and notifies the reconciler, which checks stuck instances. The argument used is
// true if any process is using the instance or has its capability files open. If a job still holds an instance of a GPU
// with fractions, the ledger remembers the job's cgroup.
func (a *Agent) setAside(g int, in *state.Instance, used bool) error {
	if err := a.keepGroup(g, in); err != nil {
		return err
	}
	if err := a.ledger.SetStuck(a.node.Cards[g].UUID, in.GI, true); err != nil {
		return err
	}
	a.node.Lock()
	in.Stuck, in.Used = true, used
	a.node.Version++
	a.node.Unlock()
	select {
	case a.leftovers <- struct{}{}:
	default: // the reconciler has already been notified
	}
	return nil
}

// closeSlice restricts a slice's capability files to root. If it cannot do so, or if processes are still using the
// slice, it sets the instance aside.
func (a *Agent) closeSlice(job uint32, s api.Slice) error {
	in := a.node.Held(job, s)
	if in == nil {
		return nil // the instance no longer exists; compareGPUs has logged the loss
	}
	if err := a.closeFiles(a.node.Cards[s.GPU], in, job); err != nil {
		a.log.WithError(err).
			WithField("job", job).
			Error("couldn't restrict a released slice's capability files to root; destroying the slice")
		return a.setAside(s.GPU, in, false) // because the job's user could still open it
	}
	if a.divided(s.GPU) {
		return a.closeFraction(job, s.GPU, in)
	}
	_, err := a.inUse(s.GPU, in)
	return err
}

// retryStuck tries again to destroy a GPU's stuck instances, except those that are still in use or open and those for
// which the destroy hook must run first. It reports whether it has called the driver to destroy any.
func (a *Agent) retryStuck(g int, c *state.Card) (tried bool) {
	a.node.Lock()
	var stuck []*state.Instance
	for _, in := range c.Ours {
		if in.Stuck && in.Job == 0 && !in.WantsHook {
			stuck = append(stuck, in)
		}
	}
	a.node.Unlock()
	open := a.stillOpen(g, stuck)
	for _, in := range stuck {
		pids, known := a.processes(g, in)
		remain := a.remain(g, in)
		used := len(pids) > 0 || open[in] || remain != nil
		a.node.Lock()
		gone := in.Used && !used && known
		in.Used = used
		if remain != nil {
			in.Blocked = remain.Error()
		}
		a.node.Unlock()
		if used {
			continue // a destroy would fail after one second of attempts
		}
		if gone {
			a.log.WithField("gpu", g).Infof("%s at %d is no longer in use", in.Profile, in.Start)
		}
		tried = true
		if err := a.destroy(g, in, new(spent)); err == nil {
			a.log.WithField("gpu", g).Infof("%s at %d is no longer stuck", in.Profile, in.Start)
		}
	}
	return tried
}

// checkLeftovers compares the GPUs with the ledger and publishes if their state has changed. If it has not changed,
// checkLeftovers does not query slurmctld, because leftover processes can run for a long time.
func (a *Agent) checkLeftovers(ctx context.Context) {
	before := a.stateVersion()
	err := a.compareGPUs()
	if err == nil && a.stateVersion() != before {
		err = a.Publish(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.log.WithError(err).Warn("couldn't check the stuck instances; trying again")
	}
}

func (a *Agent) stateVersion() int {
	a.node.Lock()
	defer a.node.Unlock()
	return a.node.Version
}

// hasLeftovers reports whether any process is using, or has open, an instance that no job holds.
func (a *Agent) hasLeftovers() bool {
	a.node.Lock()
	defer a.node.Unlock()
	for _, c := range a.node.Cards {
		for _, in := range c.Ours {
			if in.Stuck && in.Used && in.Job == 0 {
				return true
			}
		}
	}
	return false
}

// usedError returns the error for an idle instance that cannot be leased because processes are using it.
func usedError(g int, in *state.Instance) error {
	return fmt.Errorf("GPU %d: %s at %d is idle, but processes are still using it", g, in.Profile, in.Start)
}
