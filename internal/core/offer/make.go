package offer

import (
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Make makes the plan. It first places the waiting jobs with the policy, in queue order. For the first job that must
// wait, it reserves the spots that will become free first, or a larger slice for which the job should wait. If strict
// is false, later jobs can use the reserved spots until the reservation begins.
//
// slurmctld knows only the offered profiles and their nodes: it starts the first job that requests a profile on the
// first node that offers it. Make therefore offers only slices that slurmctld will allocate to the intended jobs and
// leaves the rest to the next plan.
//
// For jobs that will be submitted later, Make speculatively offers the units that no waiting job needs, but only as
// profiles for which no job is waiting. Otherwise, slurmctld could allocate such a slice to a waiting job for which the
// policy chose another slice. Make does not change the cluster's pool.
func Make(c *Cluster, jobs []*Job, strict bool) Plan {
	order := deadlineOrder(jobs, c.Now, strict)
	p := newPlanner(c, inOrder(jobs, order), strict)
	p.planQueue()
	p = p.enlarged()
	defer p.restore()
	p.toQueueOrder(jobs, order)
	if (c.Speculative == nil || len(c.Speculative) > 0) && (!strict || p.plan.Reserved == nil) {
		p.addSpeculative()
	}
	p.filterByQueueOrder()
	p.countPlaced()
	p.scarcity = 1
	p.setPrice()
	p.plan.Price = p.price
	p.plan.OverQuota = p.overQuota()
	return p.plan
}

// planner is an unfinished plan. In the cluster's pool, the spots of the jobs that are already placed are busy.
type planner struct {
	*Cluster
	jobs     []*Job
	strict   bool
	plan     Plan
	scarcity float64           // the factor for the price in this plan (see size.go)
	before   map[int]place.GPU // the original state of each changed GPU
	// singletons holds the SingletonKey of each placed job.
	singletons map[uint64]bool
	searched   searches
	quota      quota
	passed     int // the number of heads of the queue that the plan skipped after a search for a reservation

	placed        int // the number of jobs with spots
	gpus, running int // the number of GPUs; the number of placements that were busy before the plan
}

func newPlanner(c *Cluster, jobs []*Job, strict bool) *planner {
	c.parts, c.earliest = nil, nil
	p := &planner{
		Cluster: c,
		jobs:    jobs,
		strict:  strict,
		plan: Plan{
			Offers:       make([]mig.Layout, c.Pool.Len()),
			AdvertisedAs: map[Spot]string{},
			Spots:        make([][]Spot, len(jobs)),
		},
		scarcity:   fair,
		before:     map[int]place.GPU{},
		singletons: map[uint64]bool{},
		searched:   searches{},
		quota:      c.newQuota(jobs),
	}
	for k := range c.Pool.Len() {
		if g := c.Pool.GPU(k); g.Model != nil {
			p.gpus, p.running = p.gpus+1, p.running+g.Busy.Count()
		}
	}
	return p
}

// restore resets the cluster to its state before planning.
func (p *planner) restore() {
	p.swap()
	p.parts, p.earliest = nil, nil
}

// swap resets the cluster to its state before planning. A second call restores the state of the plan.
func (p *planner) swap() {
	p.sizing = sizing{}
	for k, g := range p.before {
		p.before[k] = p.Pool.GPU(k)
		p.set(k, g)
	}
}

// planQueue plans the waiting jobs.
func (p *planner) planQueue() {
	p.placeQueue()
	p.placeDenied()
	if !p.strict && p.plan.Kept != nil {
		p.lendKept()
	}
}

// placeQueue places the jobs in the queue. It stops when the head of the queue must wait and no later job can be placed
// without delaying the head. After each job that backfill has placed, it retries the head, because a better reservation
// may now be possible.
func (p *planner) placeQueue() {
	for head := 0; head < len(p.jobs); {
		_, group := Components(p.jobs, head)
		if p.decided(head) || !p.mustWait(head, group) {
			p.plan.Reserved = nil
			head += len(group)
		} else if p.strict || !p.backfill(head) {
			return
		}
	}
}

// decided reports whether the plan does not need spots for the k-th job, because the job already has spots or the plan
// contains another job with the same SingletonKey.
func (p *planner) decided(k int) bool {
	return p.plan.Spots[k] != nil || p.singletons[p.jobs[k].SingletonKey]
}

// mustWait places the group of jobs at the head of the queue, or reserves spots for it. It returns false if the group
// was placed, or if no spots can be reserved for it. In both cases, the next group becomes the head.
func (p *planner) mustWait(head int, group []*Job) bool {
	if p.plan.Reserved != nil && len(group) > 1 {
		// The jobs that were placed behind the head have not changed its reservation. Another search for a reservation
		// would be very expensive for a het job.
		return true
	}
	p.plan.Reserved = nil
	p.mayHold = group[0].Learned
	placed, why := p.place(head, group, nil)
	p.mayHold = false
	if placed || p.keep(head, group) || !p.strict && p.unreservable(group) || p.deny(head, fullGPUs(group)) {
		return false
	}
	r := p.ReserveAll(group, why)
	r.Job = head
	if !p.strict && math.IsInf(r.At, 1) && p.passed < maxPassed && p.deferred(group) {
		p.passed++
		return false
	}
	p.plan.Reserved = r
	return true
}

// maxPassed is the maximum number of jobs that a plan skips after a search for a reservation because they lack
// resources other than slices. It is limited because this search may visit every node.
const maxPassed = 32

// place places all jobs of a group, or none, without delaying the reservation r, which may be nil. k is the index of
// the group's first job in the queue. The jobs in group may have fewer eligible nodes than the same jobs in the queue.
// If the group does not fit, why is the verdict of the policy.
func (p *planner) place(k int, group []*Job, r *Reservation) (placed bool, why place.Choice) {
	p.setPrice()
	all, why := p.FindAll(group, r)
	full := p.becomeFull(all)
	if all == nil || p.deny(k, full) {
		return false, why
	}
	p.quota.left -= full
	for i, spots := range all {
		for _, s := range spots {
			p.offer(s, group[i])
		}
		p.plan.Spots[k+i] = spots
		p.placed += min(len(spots), 1)
	}
	if key := group[0].SingletonKey; key != 0 {
		p.singletons[key] = true
	}
	return true, why
}

// offer adds the spot to the plan's offers for the job and marks the spot as busy.
func (p *planner) offer(s Spot, j *Job) {
	if _, saved := p.before[s.GPU]; !saved {
		p.before[s.GPU] = p.Pool.GPU(s.GPU)
	}
	profile := p.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)
	p.Occupy(s, p.Now+j.RunTime*j.takes(profile))
	p.plan.Offers[s.GPU] = p.plan.Offers[s.GPU].With(s.Placement)
	if as := RequestedAs(j.Wants, profile); as != profile {
		p.plan.AdvertisedAs[s] = as
	}
}

// filterByQueueOrder withdraws the offers that slurmctld would allocate to jobs other than the intended ones. slurmctld
// starts the first job that requests a profile on the first node that offers it and on which the job can run. A job
// must therefore wait if an earlier job is planned on a later node but could also run on this job's node. An earlier
// job on several nodes takes its own slices on each of them, so it does not conflict on its own nodes: otherwise,
// slurmctld's backfill would reserve these nodes for a component of a het job that waits for the earlier job, and start
// neither. If one component of a het job must wait, all of its components must wait.
func (p *planner) filterByQueueOrder() {
	nodeOf := p.nodeOf()
	name := func(at Spot) string { return p.plan.Name(p.Pool.GPU(at.GPU).Model, at) }
	type wanting struct {
		job  *Job
		last int   // the job's last node in the plan, or the number of nodes if it must wait
		on   []int // the job's nodes in the plan, unless it must wait
	}
	earlier := map[string][]wanting{} // by profile name
	for k, group := range byStart(p.jobs) {
		all := p.plan.Spots[k : k+len(group)]
		early := slices.ContainsFunc(slices.Concat(all...), func(at Spot) bool {
			return slices.ContainsFunc(earlier[name(at)], func(w wanting) bool {
				n := nodeOf[at.GPU]
				return n < w.last && w.job.CanStartOn(n) && !slices.Contains(w.on, n)
			})
		})
		for i, spots := range all {
			last, on := map[string]int{}, map[string][]int{}
			for _, at := range spots {
				last[name(at)] = max(last[name(at)], nodeOf[at.GPU])
				on[name(at)] = append(on[name(at)], nodeOf[at.GPU])
				if early {
					last[name(at)], on[name(at)] = len(p.Nodes), nil
					p.plan.Offers[at.GPU] = p.plan.Offers[at.GPU].Without(at.Placement)
				}
			}
			for of, n := range last {
				earlier[of] = append(earlier[of], wanting{group[i], n, on[of]})
			}
			if early {
				all[i] = nil
			}
		}
	}
}
