package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"syscall"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/node/api"
	"caelum/internal/node/metrics"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// Lease serves the prolog of a job. If the prolog repeats the call for the same job and restart count, Lease returns
// the existing lease.
//
// Slurm drains a node when a prolog fails, so a prolog must fail only if the node itself is defective. An error from
// Lease means that one of the following is not working on this node: the ledger, the disk, a lease file, a capability
// file, or a Slurm command. For any other problem, such as an invalid request, an unreadable job record, a slice that
// the agent cannot carve or an unreachable slurmctld, Lease requeues the job, or writes the reason into the lease file
// for task_init. It returns api.NotNow if slurmctld does not respond, if a pass fails, or if leftover processes are
// using slices; the plugin then repeats its call for at most req.Wait seconds.
func (a *Agent) Lease(ctx context.Context, id uint32, req api.LeaseRequest) (*api.Lease, error) {
	began := time.Now()
	defer a.jobs.lock(id)()
	t := attempt{
		lease: api.Lease{
			Job:     id,
			Restart: req.Restart,
			UID:     req.UID,
			Slots:   slices.Clone(req.Slots),
			Since:   a.node.Now().Unix(),
		},
		sluid: req.SLUID,
	}
	slices.Sort(t.lease.Slots)
	patience := time.Duration(min(req.Wait, maxPatience.Seconds()) * float64(time.Second))
	within, cancel := ctx, context.CancelFunc(func() {})
	if patience > 0 {
		within, cancel = context.WithDeadline(ctx, began.Add(max(patience, leastPatience)))
	}
	lease, err := a.lease(within, &t)
	cancel()
	if patience > 0 && time.Since(began) >= patience && isNotNow(err) && ctx.Err() == nil {
		lease, err = a.giveUp(ctx, &t, err)
	}
	a.leased(ctx, len(lease.Slices), began, err)
	whole := time.Since(began)
	a.log.WithField("job", id).
		WithField("ms", milliseconds(whole)).
		WithField("slurmctld_ms", milliseconds(t.spent.slurmctld)).
		WithField("driver_ms", milliseconds(t.spent.driver)).
		WithField("own_ms", milliseconds(whole-t.spent.slurmctld-t.spent.driver)).
		Debug("prolog served")
	return &lease, err
}

// attempt is the state of one call to Lease.
type attempt struct {
	lease api.Lease
	job   slurm.Job // the zero value until slurmctld has answered
	sluid string    // see api.LeaseRequest
	spent spent
}

const (
	// maxPatience limits the wait that a plugin can request. No prolog should take as long as one hour.
	maxPatience = time.Hour
	// leastPatience is the minimum time that the agent spends on a late call, for example after a restart. It is
	// shorter than the time that the plugin reserves for the last answer.
	leastPatience = 2 * time.Second
	// requeueTimeout limits the duration of a requeue after a prolog has run out of time.
	requeueTimeout = 2 * time.Second
)

// isNotNow reports whether an error asks the plugin to repeat its call (api.NotNow).
func isNotNow(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == http.StatusServiceUnavailable
}

// giveUp ends the wait of a prolog that has run out of time. If the job is a batch job that can be requeued, and
// slurmctld responds, giveUp requeues the job. Otherwise, it writes the reason into the job's lease file.
func (a *Agent) giveUp(ctx context.Context, t *attempt, cause error) (api.Lease, error) {
	reason := fmt.Sprintf("%s could not serve the job in time: %v", a.cfg.Node, cause)
	a.node.Lock()
	old := a.node.Leases[t.lease.Job]
	a.node.Unlock()
	if old != nil { // the agent granted the lease, but did not write the lease file
		if _, err := a.release(*old, true); err != nil {
			return t.lease, err
		}
	}
	if t.job.Batch && t.job.Requeue {
		within, cancel := context.WithTimeout(ctx, requeueTimeout)
		defer cancel()
		missing := "slices"
		if wants, err := a.node.Wants(t.job, 0); err == nil {
			missing = list(wants)
		}
		if lease, err := a.requeueOrRefuse(within, t.job, t.lease, reason, missing); err == nil || !isNotNow(err) {
			return lease, err
		}
	}
	return a.refuse(t.lease, reason+"; submit the job again")
}

// lease makes a single attempt to serve a prolog.
func (a *Agent) lease(ctx context.Context, t *attempt) (api.Lease, error) {
	id, lease := t.lease.Job, &t.lease
	a.node.Lock()
	old := a.node.Leases[id]
	a.node.Unlock()
	if old != nil && old.Restart == lease.Restart {
		a.updateJobMap()
		return *old, a.writeLeaseFile(*old)
	}
	if old != nil { // the lease of an earlier run whose epilog did not run
		if _, err := a.release(*old, true); err != nil {
			return api.Lease{}, err
		}
	}

	search := a.search()
	asked := time.Now()
	job, err := a.readJob(ctx, id)
	add(&t.spent.slurmctld, asked)
	if reason, err := a.noLease(job, *lease, err); err != nil {
		return *lease, err
	} else if reason != "" {
		return a.refuse(*lease, reason)
	}
	t.setJob(job)
	if a.notSlots(lease.Slots) {
		return a.grant(*lease, nil)
	}
	wants, err := a.node.Wants(job, len(lease.Slots))
	if err == nil {
		err = a.countedGrowth(ctx, job)
	}
	var none *state.Unsuitable
	switch {
	case errors.As(err, &none):
		return a.requeueOrRefuse(ctx, job, *lease, none.Error(), none.Missing)
	case isNotNow(err):
		return *lease, err
	case err != nil:
		return a.refuse(*lease, err.Error())
	case len(wants) == 0: // an --exclusive job that does not request a GPU
		return a.grant(*lease, nil)
	}
	defer a.node.DropPending(id)
	hooks, leftovers := a.hooksEnded(), a.hasLeftovers()
	if granted, err := a.carveAndGrant(ctx, t, wants, search); granted != nil {
		return *granted, err
	} else if err != nil {
		return *lease, err
	}
	// The hook or the last process of a finished job may also have ended since the plan found no room.
	if a.hooking() || a.hooksEnded() != hooks {
		return *lease, api.NotNow("no room on " + a.cfg.Node + " while the destroy hook frees a slice")
	}
	if (leftovers || a.hasLeftovers()) && !(job.Batch && job.Requeue) {
		return *lease, api.NotNow("no room on " + a.cfg.Node + " while processes of finished jobs use slices")
	}
	return a.requeueOrRefuse(ctx, job, *lease, "no room on "+a.cfg.Node+" for "+list(wants), list(wants))
}

// notSlots reports whether all of a job's gres/gpu are GPUs that Slurm allocates without slices, such as gpu:whole:1 in
// docs/configure/isolation.md. slurmd numbers them after the slots.
func (a *Agent) notSlots(gpus []int) bool {
	return len(gpus) > 0 && !slices.ContainsFunc(gpus, func(gpu int) bool { return gpu < a.node.SlotCount() })
}

// setJob copies the job's data from slurmctld's record into the lease.
func (t *attempt) setJob(job slurm.Job) {
	t.job = job
	lease := &t.lease
	lease.Name, lease.User, lease.Account = job.Name, job.User, job.Account
	lease.Key = tags.Value(job.AdminComment, tags.Key)
	lease.Fingerprint = tags.Value(job.AdminComment, tags.Fingerprint)
	lease.Grow = string(tags.GrowMode(job))
	lease.Expected = int(tags.Learned(job).Seconds())
	if !job.End.IsZero() {
		lease.End = job.End.Unix()
	}
}

// noLease returns the reason, according to slurmctld's record, why a job cannot be granted a lease. The reason is empty
// if the job can be granted a lease. The error is api.NotNow if the prolog must repeat its call; any other error
// indicates a defect of this node.
func (a *Agent) noLease(job slurm.Job, lease api.Lease, answer error) (reason string, err error) {
	switch {
	case errors.Is(answer, slurm.ErrNoJob):
		return "slurmctld no longer knows this job", nil
	case errors.Is(answer, slurm.ErrAmbiguous):
		return "the job's name or comment contains text that looks like Slurm's record of an allocation; submit the " +
			"job with a different name and comment", nil
	case slurm.ClassOf(answer) == slurm.Later:
		return "", api.NotNow(answer.Error())
	case slurm.ClassOf(answer) == slurm.Defect:
		return "", answer
	case answer != nil:
		return "Slurm's record of the job is inconsistent: " + answer.Error() + "; submit the job again", nil
	case job.Restarts > lease.Restart || !job.Holds():
		return "the job is ending", nil
	case !slices.Contains(job.Nodes, a.cfg.Node):
		return "the job was changed while it was starting, and is no longer on " + a.cfg.Node, nil
	}
	return "", nil
}

// carveAndGrant carves the job's slices and grants the lease. It returns nil if there are no free spots for the
// slices.
func (a *Agent) carveAndGrant(
	ctx context.Context, t *attempt, wants []offer.Want, search *search,
) (*api.Lease, error) {
	id := t.lease.Job
	for range carveTries {
		pr, err := a.preparePending(ctx, id, t.job.ArrayJob, wants, &t.spent)
		if err != nil || pr == nil {
			return nil, err
		}
		made, held, err := a.carveAll(id, t.lease.UID, t.lease.Slots, pr, &t.spent, search)
		if err == nil {
			err = a.awaitFabric(ctx, pr.Spots, held)
		}
		if err == nil {
			granted := t.lease
			granted.Slices = made
			if err = a.unfitForSoftMig(t.job, held); err == nil {
				err = a.limitMemory(ctx, &granted, held, t.sluid)
			}
			if err != nil {
				return a.refuseUnlimited(ctx, t, granted, err)
			}
			granted.Expected = expectedOn(granted, wants, made[0].Profile)
			if granted, err = a.grant(granted, held); err == nil {
				a.publisher.NoteLeased(t.job)
			}
			return &granted, err
		}
		if errors.Is(err, syscall.ENOSPC) { // the disk is full, so the agent cannot write the ledger
			return nil, err
		}
		a.metrics.Failed(metrics.Carve)
		a.log.WithError(err).WithField("job", id).Error("couldn't carve a slice; trying other placements")
		a.node.Forget(id)
		if err := a.compareGPUs(); err != nil { // so that the next plan does not use a lost GPU
			a.log.WithError(err).Error("couldn't compare the GPUs with the ledger")
		}
	}
	return nil, nil
}

// expectedOn returns the expected run time on a slice of the given profile, in seconds. lease.Expected is the run time
// on the requested profile.
func expectedOn(lease api.Lease, wants []offer.Want, profile string) int {
	return int(math.Ceil(float64(lease.Expected) * wants[0].Takes(profile)))
}

// carveTries limits the number of times that one call to Lease tries to carve a job's slices, each time with different
// placements. An attempt fails, for example, if an instance is still in use or a GPU is lost.
const carveTries = 3
