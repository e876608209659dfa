package offer

import (
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// This file keeps room for a job that lacks something other than slices, such as CPUs or memory. The slices of the job
// are on offer, so that slurmctld plans the other resources for the job. They are lent to the jobs that end before it
// is expected to start.

// ifReady returns the jobs as if nothing but slices kept them from starting, on the nodes on which slices are kept for
// them.
func ifReady(jobs []*Job) []*Job {
	all := make([]*Job, len(jobs))
	for k := range jobs {
		now := *jobs[k]
		now.DeferredNodes = now.NoOfferNodes
		all[k] = &now
	}
	return all
}

// deferred reports whether one of these jobs cannot start now because it lacks something other than slices on too many
// nodes.
func (c *Cluster) deferred(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.nodesNow(j)) < j.nodes() && !j.OutsideCluster
	})
}

// hopeless reports whether no reservation is possible for one of these jobs: on too many nodes it lacks something else
// that is not expected to become free.
func (c *Cluster) hopeless(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.nodesNow(j))+len(j.FreedAt) < j.nodes() && !j.OutsideCluster
	})
}

// kept returns the room that a plan keeps for jobs that were placed as ifReady returned them. At is when they are
// expected to start.
func (c *Cluster) kept(head int, group []*Job, plan *Plan) *Reservation {
	nodeOf := c.nodeOf()
	r := &Reservation{Job: head, At: c.Now}
	for k, j := range group {
		for _, s := range plan.Spots[head+k] {
			r.At = max(r.At, j.ReadyAt[nodeOf[s.GPU]])
			r.Spots = append(r.Spots, s)
		}
	}
	return r
}

// lendReserved gives the kept room to jobs that would otherwise wait and that end before the room is needed. If it
// lends any of the room, the jobs for which the room was kept are no longer planned.
func (c *Cluster) lendReserved(plan *Plan, jobs []*Job, had map[uint64]bool,
	serve func(k int, group []*Job, r *Reservation) (bool, place.Choice)) {
	first, owners := Components(jobs, plan.Kept.Job)
	var were [][]Spot
	offers, names := slices.Clone(plan.Offers), map[Spot]string{}
	for k := range owners {
		were = append(were, plan.Spots[first+k])
		plan.Spots[first+k] = nil
	}
	ends := map[Spot]float64{}
	for _, s := range plan.Kept.Spots {
		g := c.Pool.GPU(s.GPU)
		ends[s] = c.Pool.Free(s.GPU, s.Placement)
		g.Busy = g.Busy.Without(s.Placement)
		c.set(s.GPU, g)
		offers[s.GPU] = offers[s.GPU].Without(s.Placement)
		if name, ok := plan.AdvertisedAs[s]; ok {
			names[s] = name
			delete(plan.AdvertisedAs, s)
		}
	}
	plan.Offers = offers
	waited := queue{}
	for k, group := range byStart(jobs) {
		if plan.Spots[k] != nil || k == first || had[group[0].SingletonKey] {
			continue
		}
		r := *plan.Kept
		if plan.Reserved != nil && plan.Reserved.Job != k {
			r.Beside = plan.Reserved
		}
		if left := waited.leavesAll(c, plan, group); left != nil {
			if served, _ := serve(k, left, &r); served {
				if plan.Reserved != nil && plan.Reserved.Job == k {
					plan.Reserved = nil
				}
				continue
			}
		}
		for _, j := range group {
			waited.add(j)
		}
	}
	if slices.ContainsFunc(plan.Kept.Spots, func(s Spot) bool { return !c.fits(s) }) {
		return
	}
	for k := range owners {
		plan.Spots[first+k] = were[k]
	}
	for _, s := range plan.Kept.Spots {
		c.begin(s, ends[s])
		plan.Offers[s.GPU] = plan.Offers[s.GPU].With(s.Placement)
		if name, ok := names[s]; ok {
			plan.AdvertisedAs[s] = name
		}
	}
}

// fits reports whether nothing is on a placement.
func (c *Cluster) fits(s Spot) bool {
	g := c.Pool.GPU(s.GPU)
	return g.Model.Open(g.Busy, g.Blocked)&mig.Layout(0).With(s.Placement) != 0
}
