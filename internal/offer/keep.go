package offer

import (
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// keep.go: room for a job that lacks something else than slices, such as CPUs or memory. Its slices are on offer, so
// that slurmctld plans the rest for it, and lent to the jobs that end before it is expected to start.

// atOnce returns the jobs as if nothing but slices kept them from starting, on the nodes on which slices are kept for
// them.
func atOnce(jobs []*Job) []*Job {
	all := make([]*Job, len(jobs))
	for k := range jobs {
		now := *jobs[k]
		now.DeferredNodes = now.Unkept
		all[k] = &now
	}
	return all
}

// deferred reports whether one of these jobs can start on no node now, for something else than slices.
func (c *Cluster) deferred(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.now(j)) < j.nodes() && !j.OutsideCluster
	})
}

// hopeless reports whether there can be no reservation for one of these jobs: it lacks something else, without an end,
// on so many nodes that the others are too few.
func (c *Cluster) hopeless(jobs []*Job) bool {
	return slices.ContainsFunc(jobs, func(j *Job) bool {
		return len(j.DeferredNodes) > 0 && len(c.now(j))+len(j.After) < j.nodes() && !j.OutsideCluster
	})
}

// kept returns what a plan keeps for jobs that were placed by atOnce. At is when they are expected to start.
func (c *Cluster) kept(head int, group []*Job, plan *Plan) *Reservation {
	nodeOf := c.nodeOf()
	r := &Reservation{Job: head, At: c.Now}
	for k, j := range group {
		for _, s := range plan.Spots[head+k] {
			r.At = max(r.At, j.Ready[nodeOf[s.GPU]])
			r.Spots = append(r.Spots, s)
		}
	}
	return r
}

// lend gives room that is kept to jobs that would otherwise wait and that end before it is needed. If it takes any of
// the room, the jobs that it was kept for are not planned any more.
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
		g.Layout = g.Layout.Without(s.Placement)
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
		if plan.Spots[k] != nil || k == first || had[group[0].Turn] {
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
	return g.Model.Open(g.Layout, g.Blocked)&mig.Layout(0).With(s.Placement) != 0
}
