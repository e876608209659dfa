package agent

import (
	"context"
	"fmt"
	"time"

	"caelum/internal/api"
)

// A job's processes are gone when its epilog comes, as a rule. But a job that is cancelled at the end of its prolog can
// have its epilog run while slurmd is launching its batch script, and the script then runs on with nobody's allocation
// (Slurm 22.05.8: killed 32 ms after its lease, released 104 ms later, the script ran for its full 3 s). Whoever still
// uses an instance keeps it: it is stuck, and its units are out of the offers, until the driver shows nobody on it.

// lingerInterval is how often an instance that somebody uses is looked at again.
const lingerInterval = 2 * time.Second

// inUse marks an instance that no job may have, because processes use it, as stuck. The capability files must be
// closed: nobody comes to it afterwards. Where the driver does not list processes the answer is false, and the instance
// is unlisted.
func (a *Agent) inUse(g int, in *instance) (bool, error) {
	pids, _ := a.processes(g, in)
	if len(pids) == 0 {
		return false, nil
	}
	a.log.WithField("gpu", g).WithField("job", in.Job).WithField("uuid", in.UUID).Warnf(
		"%s at %d is in use by processes %v of no job; its units are out of the offers until they are gone", in.Profile, in.Start, pids)
	return true, a.setAside(g, in, true)
}

// processes lists the processes on an instance; known is false where the driver does not tell. Such an instance is not
// given to another job as it is. It is destroyed instead, which the driver refuses while a process uses it, and made
// again.
func (a *Agent) processes(g int, in *instance) (pids []int, known bool) {
	pids, err := a.hw.Processes(g, in.GI)
	a.mu.Lock()
	defer a.mu.Unlock()
	in.unlisted = err != nil
	c := a.cards[g]
	if err != nil && !c.unlisted {
		a.log.WithError(err).
			WithField("gpu", g).
			Warn("couldn't list the processes on a GPU; its idle instances are destroyed and made again for each job")
	}
	c.unlisted = err != nil
	return pids, err == nil
}

// unlisted reports whether the driver did not tell, when it was last asked, which processes are on an instance.
func (a *Agent) unlisted(in *instance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return in.unlisted
}

// setAside marks an instance as stuck, and has it looked at soon.
func (a *Agent) setAside(g int, in *instance, used bool) error {
	if err := a.ledger.SetStuck(a.cards[g].UUID, in.GI, true); err != nil {
		return err
	}
	a.mu.Lock()
	in.Stuck, in.used = true, used
	a.version++
	a.mu.Unlock()
	select {
	case a.leftovers <- struct{}{}:
	default: // the reconciler knows
	}
	return nil
}

// closeSlice takes a slice back from a job's user.
func (a *Agent) closeSlice(job uint32, s api.Slice) error {
	in := a.held(job, s)
	if in == nil {
		return nil // gone: the reconciliation has said so
	}
	if err := a.caps.Close(a.cards[s.GPU].Minor, a.hwOf(in)); err != nil {
		a.log.WithError(err).
			WithField("job", job).
			Error("couldn't close a released slice's capability files: the slice will be destroyed")
		return a.setAside(s.GPU, in, false) // its user could come back to it
	}
	_, err := a.inUse(s.GPU, in)
	return err
}

// retryStuck tries again to destroy what could not be destroyed: what held it may be gone.
func (a *Agent) retryStuck(g int, c *card) {
	a.mu.Lock()
	var stuck []*instance
	for _, in := range c.ours {
		if in.Stuck && in.Job == 0 {
			stuck = append(stuck, in)
		}
	}
	a.mu.Unlock()
	open := a.stillOpen(g, stuck)
	for _, in := range stuck {
		pids, known := a.processes(g, in)
		used := len(pids) > 0 || open[in]
		a.mu.Lock()
		gone := in.used && !used && known
		in.used = used
		a.mu.Unlock()
		if used {
			continue // destroying it would fail, after a second of tries
		}
		if gone {
			a.log.WithField("gpu", g).Infof("%s at %d is no longer in use", in.Profile, in.Start)
		}
		if err := a.destroy(g, in, new(spent)); err == nil {
			a.log.WithField("gpu", g).Infof("%s at %d is no longer stuck", in.Profile, in.Start)
		}
	}
}

// lookAgain looks at the GPUs alone, and publishes if something has changed there: slurmctld is not asked for each
// process that lingers.
func (a *Agent) lookAgain(ctx context.Context) {
	before := a.stateVersion()
	err := a.compareGPUs()
	if err == nil && a.stateVersion() != before {
		err = a.Publish(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.log.WithError(err).Warn("couldn't look after what is still in use; trying again")
	}
}

func (a *Agent) stateVersion() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// hasLeftovers reports whether somebody uses an instance of no job's.
func (a *Agent) hasLeftovers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.cards {
		for _, in := range c.ours {
			if in.Stuck && in.used && in.Job == 0 {
				return true
			}
		}
	}
	return false
}

// usedError says that an idle instance cannot be given to a job.
func usedError(g int, in *instance) error {
	return fmt.Errorf("GPU %d: %s at %d is idle, but somebody uses it", g, in.Profile, in.Start)
}
