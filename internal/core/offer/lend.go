package offer

import (
	"slices"

	"caelum/internal/core/mig"
)

// The functions in this file keep spots for a job that lacks resources other than slices, such as CPUs or memory. The
// plan offers these spots so that slurmctld plans the missing resources for the job. If the job is not expected to
// start soon, the plan lends the spots to jobs that will end before it starts.

// keep places a group of jobs that lack resources other than slices, and records that the spots are kept for the group.
// It returns false if the group was not placed. A plan keeps spots for only one group.
func (p *planner) keep(head int, group []*Job) bool {
	if p.plan.Kept != nil ||
		!slices.ContainsFunc(group, func(j *Job) bool { return len(j.DeferredNodes) > len(j.NoOfferNodes) }) {
		return false
	}
	placed, _ := p.place(head, ifReady(group), nil)
	if placed {
		p.plan.Kept = p.kept(head, group)
	}
	return placed
}

// ifReady returns copies of the jobs in which only NoOfferNodes are deferred, so that a plan can place them on nodes
// where they lack other resources.
func ifReady(jobs []*Job) []*Job {
	all := make([]*Job, len(jobs))
	for k := range jobs {
		now := *jobs[k]
		now.DeferredNodes = now.NoOfferNodes
		all[k] = &now
	}
	return all
}

// kept returns the reservation for a group of jobs that was placed with ifReady. Its At field is the time at which the
// group is expected to start.
func (p *planner) kept(head int, group []*Job) *Reservation {
	nodeOf := p.nodeOf()
	r := &Reservation{Job: head, At: p.Now}
	for k, j := range group {
		for _, s := range p.plan.Spots[head+k] {
			r.At = max(r.At, j.ReadyAt[nodeOf[s.GPU]])
			r.Spots = append(r.Spots, s)
		}
	}
	return r
}

// deferred reports whether any of the jobs cannot start now because it lacks resources other than slices on too many of
// its nodes.
func (c *Cluster) deferred(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.nodesNow(j)) < j.nodes() && !j.OutsideCluster
	})
}

// unreservable reports whether any of the jobs lacks resources other than slices on too many nodes and these resources
// are not expected to become free. A reservation is not possible for such a job.
func (c *Cluster) unreservable(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.nodesNow(j))+len(j.FreedAt) < j.nodes() && !j.OutsideCluster
	})
}

// lendKept lends the kept spots to waiting jobs that will end before the spots are needed. If it lends any spots, it
// removes from the plan the jobs for which they were kept.
func (p *planner) lendKept() {
	first, owners := Components(p.jobs, p.plan.Kept.Job)
	theirs := p.plan.Spots[first : first+len(owners)]
	spots := slices.Clone(theirs)
	clear(theirs)
	p.countPlaced()
	offers := make([]keptOffer, len(p.plan.Kept.Spots))
	for k, s := range p.plan.Kept.Spots {
		offers[k] = p.withdraw(s)
	}
	p.placeBorrowers(first)
	if slices.ContainsFunc(p.plan.Kept.Spots, func(s Spot) bool { return !p.isFree(s) }) {
		return
	}
	copy(theirs, spots)
	p.countPlaced()
	for _, o := range offers {
		p.offerAgain(o)
	}
}

// placeBorrowers places jobs that will end before the kept spots are needed. first is the queue index of the first job
// for which the spots are kept.
func (p *planner) placeBorrowers(first int) {
	earlier := newDemand()
	for k, group := range byStart(p.jobs) {
		if k == first || p.decided(k) {
			continue
		}
		r := *p.plan.Kept
		reserved := p.plan.Reserved
		if reserved != nil && reserved.Job != k {
			r.Beside = reserved
		}
		if left := earlier.restrictAll(p.Cluster, &p.plan, group); left != nil {
			if placed, _ := p.place(k, left, &r); placed {
				if reserved != nil && reserved.Job == k {
					p.plan.Reserved = nil
				}
				continue
			}
		}
		earlier.addAll(group)
	}
}

// keptOffer is an offer that is withdrawn while its spot can be lent.
type keptOffer struct {
	Spot
	end  float64 // the expected end, in seconds, of the job on the spot
	name string  // the name under which the spot is offered, or empty for the name of its profile
}

// withdraw removes a spot's offer from the plan and frees the spot.
func (p *planner) withdraw(s Spot) keptOffer {
	o := keptOffer{s, p.Pool.FreeAt(s.GPU, s.Placement), p.plan.AdvertisedAs[s]}
	g := p.Pool.GPU(s.GPU)
	g.Busy = g.Busy.Without(s.Placement)
	p.set(s.GPU, g)
	p.plan.Offers[s.GPU] = p.plan.Offers[s.GPU].Without(s.Placement)
	delete(p.plan.AdvertisedAs, s)
	return o
}

// offerAgain restores an offer that was removed by withdraw.
func (p *planner) offerAgain(o keptOffer) {
	p.Occupy(o.Spot, o.end)
	p.plan.Offers[o.GPU] = p.plan.Offers[o.GPU].With(o.Placement)
	if o.name != "" {
		p.plan.AdvertisedAs[o.Spot] = o.name
	}
}

// isFree reports whether a spot does not overlap any busy placements or blocked units.
func (c *Cluster) isFree(s Spot) bool {
	g := c.Pool.GPU(s.GPU)
	return g.Model.Open(g.Busy, g.Blocked)&mig.Layout(0).With(s.Placement) != 0
}
