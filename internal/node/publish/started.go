package publish

import (
	"context"
	"errors"
	"maps"

	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// account compares the pending leases with the jobs that slurmctld lists on the node. It adds a pending lease for
// each new job, and removes those for jobs that have left the node.
func (p *Publisher) account(ctx context.Context, jobs []slurm.Job) error {
	here := map[uint32]slurm.Job{}
	for _, j := range jobs {
		here[j.ID] = j
		// A job that is ending is not assigned any slices; if its prolog is still running, the prolog's call returns an
		// error. If a job's record is unreadable, its request is unknown, and slurmctld may have allocated slices to
		// it.
		if !j.Holds() || !state.AsksForSlices(j) && j.Problem == "" || p.Node.Accounted(j.ID, j.Restarts) {
			continue
		}
		if err := p.preLease(ctx, j); err != nil {
			return err
		}
	}
	p.Node.Lock()
	defer p.Node.Unlock()
	p.Node.Here = here
	if p.following.Load() { // the passes do not list the jobs
		p.Node.Here = p.Node.WithNoted(here)
	}
	for job, pr := range p.Node.Pending {
		if _, present := here[job]; !present && !pr.Leasing {
			delete(p.Node.Pending, job)
			p.Node.Version++
		}
	}
	maps.DeleteFunc(p.allocations, func(job uint32, _ allocation) bool { _, present := here[job]; return !present })
	for job := range p.Node.Unserved {
		if _, present := here[job]; !present {
			delete(p.Node.Unserved, job)
		}
	}
	return nil
}

// preLease records a pending lease for a job that slurmctld has started on this node but that has no lease yet. If the
// job's record is unclear, it uses the listed request, because a user's job must not prevent the node from publishing.
// The job's prolog converts the pending lease to a lease or removes it. A job without GPU slots is not given a pending
// lease, because its prolog does not request a lease.
func (p *Publisher) preLease(ctx context.Context, listed slurm.Job) error {
	id, slots := listed.ID, 0
	job, err := p.Slurmctld.Job(ctx, id)
	if err == nil || slurm.ClassOf(err) == slurm.Unclear {
		p.noteAllocation(listed, job, err)
	}
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		return nil
	case slurm.ClassOf(err) == slurm.Unclear:
		job = listed
		job.Allocated = map[string]slurm.GRESList{p.Config.Node: job.PerNode.Positive()}
		slots = p.slotsAsked(job)
	case err != nil:
		return err
	default:
		slots = job.Allocated[p.Config.Node].Total("gpu")
	}
	if !job.Holds() {
		return nil
	}
	wants, err := p.Node.Wants(job, slots)
	p.Node.Lock()
	defer p.Node.Unlock()
	if l := p.Node.Leases[id]; p.Node.Pending[id] != nil || l != nil && l.Restart >= job.Restarts {
		return nil
	}
	if err != nil || len(wants) == 0 || slots == 0 { // no prolog will carve slices for this job
		if slots == 0 && len(wants) > 0 {
			p.Log.WithField("job", id).
				Warn("the job gets no device, because it has gres/mig but no gres/gpu; " +
					"its slices will count as used until the job ends")
		}
		p.Node.Unserved[id] = job.Restarts
		return nil
	}
	if _, ok := p.Node.TakeOffers(id, job.ArrayJob, wants); !ok {
		p.Node.Pending[id] = &state.PendingLease{Wants: wants}
		p.Node.Version++
	}
	return nil
}

// slotsAsked returns the maximum number of GPU slots on this node that the job's request allows.
func (p *Publisher) slotsAsked(job slurm.Job) int {
	if job.Exclusive {
		return p.Node.SlotCount()
	}
	return min(job.GPUsPerNode(), p.Node.SlotCount())
}
