package agent

import (
	"context"
	"errors"
	"slices"

	"caelum/internal/failpoint"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// releaseHeld releases the held jobs whose slices are on offer everywhere they need them, this node being the last.
func (a *Agent) releaseHeld(ctx context.Context, waiting []slurm.Waiting, served []uint32) {
	for _, w := range waiting {
		log := a.log.WithField("job", w.ID)
		if w.Priority > 0 && slurm.HasTag(w.AdminComment, slurm.TagHeld) {
			// An agent released it and ended before it could say so, or an admin did.
			if err := a.ctl.SetAdminComment(ctx, w.ID, replaceTag(w.AdminComment, slurm.TagHeld, slurm.TagReleased)); err != nil {
				log.WithError(err).Warn("couldn't note that a held job is released")
			}
			continue
		}
		if !w.Releasable(a.now()) || !slices.Contains(served, w.ID) {
			continue
		}
		if ok, err := a.onOffer(ctx, w); err != nil {
			log.WithError(err).Warn("couldn't see whether a held job's slices are on offer")
			continue
		} else if !ok {
			continue
		}
		// The release goes first: a crash in between leaves a mark on a job that waits, which the next pass puts right.
		// While a job is marked job_submit.lua lets no user hold it.
		err := a.ctl.Release(ctx, w.ID)
		failpoint.Hit(failpoint.HeldReleased)
		if err == nil {
			err = a.ctl.SetAdminComment(ctx, w.ID, replaceTag(w.AdminComment, slurm.TagHeld, slurm.TagReleased))
		}
		if err != nil && !errors.Is(err, slurm.ErrJobState) {
			log.WithError(err).Warn("couldn't release a held job")
			continue
		}
		a.changes.Add(1)
		log.Info("released: its slices are on offer")
	}
}

// holdStray holds components that want to start while another component of their het job cannot: slurmctld would keep
// nodes for them (plan.Stray). They are marked, and released as every held job is. One agent does it, the first that is
// planned for.
func (a *Agent) holdStray(ctx context.Context, snapshot plan.Snapshot) {
	for _, w := range plan.Stray(snapshot) {
		log := a.log.WithField("job", w.ID)
		// The hold goes first: a marked job with a priority counts as released.
		err := a.ctl.Hold(ctx, w.ID)
		if err == nil {
			err = a.ctl.SetAdminComment(ctx, w.ID, replaceTag(w.AdminComment, slurm.TagReleased, slurm.TagHeld))
		}
		switch {
		case errors.Is(err, slurm.ErrJobState), errors.Is(err, slurm.ErrNoJob):
		case err != nil:
			log.WithError(err).Warn("couldn't hold a component of a het job that cannot start as a whole")
		default:
			log.WithField("het_job", w.HetJob).Info("held: another component of its het job cannot start")
		}
	}
}

// onOffer reports whether enough nodes have what the job needs on offer at this moment.
func (a *Agent) onOffer(ctx context.Context, w slurm.Waiting) (bool, error) {
	if w.NumNodes <= 1 && len(w.ReqNodes) <= 1 {
		return true, nil // this node has it, or the job would not have been served
	}
	nodes, err := a.ctl.Nodes(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for _, node := range nodes {
		if node.Accepts(w) && node.HasFree(w) {
			ready++
		}
	}
	return ready >= max(w.NumNodes, len(w.ReqNodes)), nil
}
