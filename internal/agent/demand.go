package agent

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"caelum/internal/failpoint"
	"caelum/internal/offer"
	"caelum/internal/slurm"
)

// demands are the waiting jobs that this node could run, in Slurm's order, as what they need here.
func (a *Agent) demands(node slurm.Node, waiting []slurm.Waiting) []*offer.Job {
	var all []*offer.Job
	for _, w := range inOrder(waiting) {
		if !(w.Eligible() || a.releasable(w)) || !node.Serves(w) {
			continue
		}
		var wants []offer.Want
		for _, g := range w.SlicesPerNode() {
			if g.Type != "" && g.Type != closedType {
				wants = append(wants, offer.Want{Profile: g.Type, Count: g.Count})
			}
		}
		// The pending tasks of an array are one entry of the queue; more of them than the node has slots cannot start.
		for range min(w.Elements, a.slotCount()) {
			if len(wants) > 0 {
				all = append(all, &offer.Job{ID: w.ID, Wants: wants, Runs: math.Inf(1), Limit: math.Inf(1)})
			}
		}
	}
	return all
}

// inOrder puts held jobs, which have priority 0 and so come last, back where their age would have them.
func inOrder(waiting []slurm.Waiting) []slurm.Waiting {
	var sorted, held []slurm.Waiting
	for _, w := range waiting {
		if w.Priority == 0 {
			held = append(held, w)
		} else {
			sorted = append(sorted, w)
		}
	}
	for _, h := range held {
		at := slices.IndexFunc(sorted, func(w slurm.Waiting) bool { return w.ID > h.ID })
		if at < 0 {
			at = len(sorted)
		}
		sorted = slices.Insert(sorted, at, h)
	}
	return sorted
}

// forgetting is how much later than it might start a requeued job is released. slurmd runs no prolog for a job of which it still
// knows an earlier run, and 22.05 may know it for two seconds longer than slurmctld keeps the job waiting
// (_clear_expired_job_states in slurm_cred.c; gone by 24.11).
const forgetting = 3 * time.Second

// releasable reports whether an agent may release the job: job_submit.lua submitted it held because slurmctld would have
// refused it while its slices are not on offer, or slurmctld has since given it up as BadConstraints because they went off
// offer again. A user's or an admin's own hold bears no such mark.
func (a *Agent) releasable(w slurm.Waiting) bool {
	due := w.Job.Eligible
	if w.Restarts > 0 {
		due = due.Add(forgetting)
	}
	if due.After(a.now()) {
		return false
	}
	return w.HeldByMark() || w.Reason == "BadConstraints" && slurm.HasMark(w.AdminComment, markReleased)
}

// releaseHeld releases the held jobs whose slices are on offer everywhere they need them, this node being the last.
func (a *Agent) releaseHeld(ctx context.Context, waiting []slurm.Waiting, served []uint32) {
	for _, w := range waiting {
		log := a.log.WithField("job", w.ID)
		if w.Priority > 0 && slurm.HasMark(w.AdminComment, slurm.MarkHeld) {
			// An agent released it and ended before it could say so, or an admin did.
			if err := a.ctl.SetAdminComment(ctx, w.ID, replaceMark(w.AdminComment, slurm.MarkHeld, markReleased)); err != nil {
				log.WithError(err).Warn("couldn't note that a held job is released")
			}
			continue
		}
		if !a.releasable(w) || !slices.Contains(served, w.ID) {
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
			err = a.ctl.SetAdminComment(ctx, w.ID, replaceMark(w.AdminComment, slurm.MarkHeld, markReleased))
		}
		if err != nil && !errors.Is(err, slurm.ErrJobState) {
			log.WithError(err).Warn("couldn't release a held job")
			continue
		}
		log.Info("released: its slices are on offer")
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
		if node.Serves(w) && node.Has(w) {
			ready++
		}
	}
	return ready >= max(w.NumNodes, len(w.ReqNodes)), nil
}
