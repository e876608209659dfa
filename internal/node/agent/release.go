package agent

import (
	"context"
	"errors"
	"time"

	"caelum/internal/failpoint"
	"caelum/internal/node/api"
	"caelum/internal/node/publish"
)

// Release serves a job's epilog: it makes the job's slices idle and publishes new offers before it returns. The call
// may be repeated, may arrive late, and need not follow a prolog. If its restart count is lower than the lease's, it
// comes from a late epilog of an earlier run, and nothing is released.
func (a *Agent) Release(ctx context.Context, id uint32, restart int) error {
	return a.releaseJob(ctx, id, restart, false)
}

// releaseJob is like Release. The argument gone is true if no epilog has run, in which case the end time of the run is
// unknown.
func (a *Agent) releaseJob(ctx context.Context, id uint32, restart int, gone bool) error {
	again, err := a.endLease(ctx, id, restart, gone)
	if err != nil {
		return err
	}
	if again {
		a.publisher.Soon()
		return nil
	}
	// If slurmctld does not answer, no harm is done, because it will also count the released slices as free. The plugin
	// disconnects after 5 s, but the pass continues for up to 10 s in total.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := a.Publish(ctx); err != nil && !errors.Is(err, publish.ErrBusy) {
		a.log.WithError(err).WithField("job", id).Warn("released a lease, but couldn't publish the new offers")
	}
	return nil
}

// endLease lets the job grow if its run ran out of memory, and releases the job's lease.
func (a *Agent) endLease(ctx context.Context, id uint32, restart int, gone bool) (again bool, err error) {
	// The limit includes the wait for the job's lock. The slices must be free when the epilog ends.
	growing, cancel := context.WithTimeout(context.WithoutCancel(ctx), growTimeout)
	defer cancel()
	defer a.jobs.lock(id)()
	a.node.Lock()
	lease := a.node.Leases[id]
	if pr := a.node.Pending[id]; pr != nil { // the prolog was killed before the agent answered
		delete(a.node.Pending, id)
		a.node.Version++
	}
	a.node.Unlock()
	if lease == nil || restart < lease.Restart {
		return false, nil
	}
	if lease.Recovered {
		if err := a.completeLease(growing, id); err != nil {
			a.log.WithError(err).WithField("job", id).
				Warn("couldn't complete a restored lease; if its job failed, it will not be requeued")
		}
		a.node.Lock()
		lease = a.node.Leases[id]
		a.node.Unlock()
	}
	if !gone {
		a.growAfterFailure(growing, *lease)
	}
	return a.release(*lease, gone)
}

// release restricts the capability files of the lease's slices to root and ends the lease. The result named again is
// true if the agent has already offered the slice to the next waiting job.
func (a *Agent) release(lease api.Lease, gone bool) (again bool, err error) {
	var closed []placed
	for _, s := range lease.Slices {
		if err := a.closeSlice(lease.Job, s); err != nil {
			return false, err
		}
		if in := a.node.Held(lease.Job, s); in != nil {
			closed = append(closed, placed{s.GPU, in})
		}
	}
	if _, err := a.setHeldAside(closed); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.ReleaseClosed)
	if err := a.removeLeaseFile(lease.Job); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.ReleaseUnlinked)
	if err := a.ledger.Release(lease.Job); err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.Released)
	a.removeGroup(lease)
	a.usage.End(lease.Job, gone)
	if len(lease.Slices) > 0 {
		a.metrics.Ended()
	}
	a.node.Lock()
	a.node.DropLease(lease.Job)
	a.node.Version++
	again = a.node.OfferAgain(lease)
	a.node.Unlock()
	a.remakeSoon()
	a.log.WithField("job", lease.Job).Info("released")
	a.updateJobMap()
	failpoint.Hit(failpoint.ReleaseUnmapped)
	return again, nil
}
