package publish

import (
	"context"
	"errors"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/failpoint"
	"caelum/internal/slurm"
)

// MaxChanged limits the number of jobs that a pass releases because of their deadlines or only retags, and the number
// that it holds. Each takes several requests to slurmctld, and any user can submit thousands of such jobs. The next
// pass continues.
const MaxChanged = 16

// releaseHeld releases held jobs whose slices are offered or whose latest start time has passed. The argument served
// lists the jobs for which this node offers every slice that the plan assigns to them here. A job that needs several
// nodes is released only when enough nodes offer its slices.
func (p *Publisher) releaseHeld(ctx context.Context, waiting []slurm.Waiting, served []uint32) {
	config, err := p.SlurmConfig(ctx)
	retypes := err == nil && config.ReplacesTypes()
	changed := 0
	for _, w := range waiting {
		log := p.Log.WithField("job", w.ID)
		if retypes && tags.Needed(*w.Job) != "" {
			continue // assignProfile has not replaced the job's profile yet
		}
		if w.Priority > 0 && tags.Has(w.AdminComment, tags.Held) {
			// Either an administrator has released the job, or an agent has released it but stopped before replacing
			// the tag.
			if changed++; changed > MaxChanged {
				continue
			}
			if err := p.retag(ctx, w.ID, tags.Held, tags.Released); err != nil {
				log.WithError(err).Warn("couldn't change the tag of a released job")
			}
			continue
		}
		late := eligible.TooLate(w, p.Node.Now()) // slurmctld ends the job once it is released
		if !eligible.Releasable(w, p.Node.Now()) || !late && !slices.Contains(served, w.ID) {
			continue
		}
		if late {
			if changed++; changed > MaxChanged {
				continue
			}
			log.Warn("releasing a held job that cannot meet its deadline, so that slurmctld ends the job")
		} else if ok, err := p.onOffer(ctx, w); err != nil {
			log.WithError(err).Warn("couldn't check whether a held job's slices are offered")
			continue
		} else if !ok {
			continue
		}
		// The agent releases the job before it replaces the tag. If the agent crashes in between, the next pass
		// replaces the tag. While a job has the Held tag, job_submit.lua does not allow users to hold it.
		err := p.Slurmctld.Release(ctx, w.ID)
		failpoint.Hit(failpoint.HeldReleased)
		if err == nil {
			err = p.retag(ctx, w.ID, tags.Held, tags.Released)
		}
		if err != nil && !errors.Is(err, slurm.ErrJobState) {
			log.WithError(err).Warn("couldn't release a held job")
			continue
		}
		p.changes.Add(1)
		log.Info("released a held job")
	}
}

// holdStray holds each het job component that can start while another component of the same job cannot. Without the
// hold, slurmctld would reserve nodes for it (plan.Stray). The component is given the Held tag, so that releaseHeld
// releases it like any other held job. Only the agent of the first node in the plan calls holdStray.
func (p *Publisher) holdStray(ctx context.Context, stray []slurm.Waiting) {
	for _, w := range stray[:min(len(stray), MaxChanged)] {
		log := p.Log.WithField("job", w.ID)
		// The agent holds the job before setting the tag, because releaseHeld treats a job with the tag and a nonzero
		// priority as released.
		err := p.Slurmctld.Hold(ctx, w.ID)
		if err == nil {
			err = p.retag(ctx, w.ID, tags.Released, tags.Held)
		}
		switch {
		case errors.Is(err, slurm.ErrJobState), errors.Is(err, slurm.ErrNoJob):
		case err != nil:
			log.WithError(err).Warn("couldn't hold a component of a het job that cannot start as a whole")
		default:
			log.WithField("het_job", w.HetJob).Info("held a component of a het job that cannot start as a whole")
		}
	}
}

// retag replaces one of a job's tags. It rereads the comment, because another agent may have added tags since this
// pass read the queue.
func (p *Publisher) retag(ctx context.Context, id uint32, old, new string) error {
	job, err := p.Slurmctld.Job(ctx, id)
	if err != nil {
		return err
	}
	return p.Slurmctld.SetAdminComment(ctx, id, tags.Replace(job.AdminComment, old, new))
}

// onOffer reports whether enough nodes offer the slices that the job requests.
func (p *Publisher) onOffer(ctx context.Context, w slurm.Waiting) (bool, error) {
	if w.NumNodes <= 1 && len(w.ReqNodes) <= 1 {
		return true, nil // this node already offers the job's slices
	}
	nodes, err := p.Slurmctld.Nodes(ctx)
	if err != nil {
		return false, err
	}
	if (plan.Snapshot{Nodes: nodes}).Elsewhere(w) {
		return true, nil
	}
	ready := 0
	for _, node := range nodes {
		if eligible.Accepts(node, w) && eligible.HasFree(node, w) {
			ready++
		}
	}
	return ready >= max(w.NumNodes, len(w.ReqNodes)), nil
}

// assignProfile sets the profile of each requeued job whose request does not name one. If slurmctld replaces the types
// in a request, it also sets the larger profile of each job that has grown.
func (p *Publisher) assignProfile(ctx context.Context, waiting []slurm.Waiting, config slurm.Config) {
	retypes := config.ReplacesTypes()
	for i := range waiting {
		w := &waiting[i]
		gres := slices.Clone(w.PerNode)
		switch larger := tags.Needed(*w.Job); {
		case larger != "" && retypes:
			for k := range gres {
				if gres[k].Name == "mig" {
					gres[k].Type = larger
				}
			}
		case eligible.Releasable(*w, p.Node.Now()) && len(w.PerNode.Named("mig")) == 0:
			n := max(w.GPUsPerNode(), 1)
			gres = append(gres, slurm.GRES{Name: "mig", Type: p.Node.SizeOf(*w.Job), Count: n})
		default:
			continue
		}
		if err := p.Slurmctld.SetJobGRES(ctx, w.ID, gres); err != nil {
			p.Log.WithError(err).WithField("job", w.ID).Warn("couldn't set the profile of a requeued job")
			continue
		}
		if tags.Needed(*w.Job) != "" {
			failpoint.Hit(failpoint.GrowRetyped)
		}
		p.changes.Add(1)
		*w = w.Clone() // the planner compares its record of the job with the next one
		w.PerNode = gres
	}
}
