package agent

import (
	"caelum/internal/eligible"
	"caelum/internal/failpoint"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"caelum/internal/tags"
	"context"
	"errors"
	"slices"
)

// releaseHeld releases held jobs whose slices are offered. served contains the jobs for which this node offers all
// slices that the plan assigns to the jobs on this node. A job that also needs other nodes is released when enough
// nodes offer its slices.
func (p *publisher) releaseHeld(ctx context.Context, waiting []slurm.Waiting, served []uint32) {
	for _, w := range waiting {
		log := p.log.WithField("job", w.ID)
		if w.Priority > 0 && tags.Has(w.AdminComment, tags.Held) {
			// There are two possible reasons: an administrator has released the job, or an agent released the job and
			// stopped before it could replace the tag.
			comment := tags.Replace(w.AdminComment, tags.Held, tags.Released)
			if err := p.ctl.SetAdminComment(ctx, w.ID, comment); err != nil {
				log.WithError(err).Warn("couldn't record that a held job is released")
			}
			continue
		}
		if !eligible.Releasable(w, p.now()) || !slices.Contains(served, w.ID) {
			continue
		}
		if ok, err := p.onOffer(ctx, w); err != nil {
			log.WithError(err).Warn("couldn't check whether a held job's slices are offered")
			continue
		} else if !ok {
			continue
		}
		// The job is released before its tag is replaced. If the agent crashes between these steps, the next pass
		// replaces the tag. While a job has the tag, job_submit.lua does not allow users to hold the job.
		err := p.ctl.Release(ctx, w.ID)
		failpoint.Hit(failpoint.HeldReleased)
		if err == nil {
			err = p.ctl.SetAdminComment(ctx, w.ID, tags.Replace(w.AdminComment, tags.Held, tags.Released))
		}
		if err != nil && !errors.Is(err, slurm.ErrJobState) {
			log.WithError(err).Warn("couldn't release a held job")
			continue
		}
		p.changes.Add(1)
		log.Info("released a held job, because its slices are offered")
	}
}

// holdStray holds each component of a het job that can start although another component cannot. Otherwise, slurmctld
// would reserve nodes for the component (plan.Stray). The component gets the tag of held jobs, so that releaseHeld
// releases it like any other held job. Only the agent of the first node in the plan calls holdStray.
func (p *publisher) holdStray(ctx context.Context, snapshot plan.Snapshot) {
	for _, w := range plan.Stray(snapshot) {
		log := p.log.WithField("job", w.ID)
		// The job is held before it gets the tag, because a job with the tag and a nonzero priority is treated as
		// released.
		err := p.ctl.Hold(ctx, w.ID)
		if err == nil {
			err = p.ctl.SetAdminComment(ctx, w.ID, tags.Replace(w.AdminComment, tags.Released, tags.Held))
		}
		switch {
		case errors.Is(err, slurm.ErrJobState), errors.Is(err, slurm.ErrNoJob):
		case err != nil:
			log.WithError(err).Warn("couldn't hold a component of a het job that cannot start as a whole")
		default:
			log.WithField("het_job", w.HetJob).Info("held a job, because another component of its het job cannot start")
		}
	}
}

// onOffer reports whether enough nodes offer the slices that the job requests.
func (p *publisher) onOffer(ctx context.Context, w slurm.Waiting) (bool, error) {
	if w.NumNodes <= 1 && len(w.ReqNodes) <= 1 {
		return true, nil // this node already offers the job's slices
	}
	nodes, err := p.ctl.Nodes(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for _, node := range nodes {
		if eligible.Accepts(node, w) && eligible.HasFree(node, w) {
			ready++
		}
	}
	return ready >= max(w.NumNodes, len(w.ReqNodes)), nil
}

// assignProfile sets the profile of each requeued job that has no profile.
func (p *publisher) assignProfile(ctx context.Context, waiting []slurm.Waiting) {
	for i := range waiting {
		w := &waiting[i]
		if !eligible.Releasable(*w, p.now()) || len(w.PerNode.Named("mig")) > 0 {
			continue
		}
		n := max(w.GPUsPerNode(), 1)
		gres := append(slices.Clone(w.PerNode), slurm.GRES{Name: "mig", Type: p.sizeOf(w.Job), Count: n})
		if err := p.ctl.SetJobGRES(ctx, w.ID, gres); err != nil {
			p.log.WithError(err).WithField("job", w.ID).Warn("couldn't set the profile of a requeued job")
			continue
		}
		p.changes.Add(1)
		w.PerNode = gres
	}
}
