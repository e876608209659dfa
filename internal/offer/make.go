package offer

import (
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// Make makes the plan. The waiting jobs come first, in their order, each placed by the policy. For the first job that
// has to wait, Make reserves the room that is free first, or the room for which the policy holds the job. Jobs behind
// it may use room that is free again before the reservation begins; if strict, they get nothing.
//
// slurmctld knows profiles and nodes only. It gives an offer to the first job that wants the profile, on the first node
// that has it. Make therefore offers only what slurmctld will give to the jobs for which it is planned. The next plan
// offers the rest.
//
// Room for which no job waits is offered speculatively, to jobs that are yet to come, but only as profiles for which no
// job waits. Otherwise slurmctld would give a waiting job what the policy denied it, or give another job a place that
// the policy did not choose. The pool of the cluster is unchanged afterwards.
func Make(c *Cluster, jobs []*Job, strict bool) Plan {
	p := newPlanner(c, jobs, strict)
	defer p.restore()
	p.placeQueue()
	if !strict && p.plan.Kept != nil {
		p.lendKept()
	}
	if !strict || p.plan.Reserved == nil {
		p.addSpeculative()
	}
	p.filterByQueueOrder()
	return p.plan
}

// planner has a plan that is being made. The jobs that are placed so far are busy in the pool of the cluster.
type planner struct {
	*Cluster
	jobs   []*Job
	strict bool
	plan   Plan
	behind int               // how many of the jobs behind a job the policy considers
	before map[int]place.GPU // the GPUs that have changed, as they were
	// singletons are the keys of which a job is placed: see Job.SingletonKey.
	singletons map[uint64]bool
	searched   searches
	passed     int // how many heads of the queue were passed over after a search for a reservation
}

func newPlanner(c *Cluster, jobs []*Job, strict bool) *planner {
	c.Ordered, c.parts = strict, nil
	return &planner{
		Cluster: c,
		jobs:    jobs,
		strict:  strict,
		plan: Plan{
			Offers:       make([]mig.Layout, c.Pool.Len()),
			AdvertisedAs: map[Spot]string{},
			Spots:        make([][]Spot, len(jobs)),
		},
		behind:     place.InputsOf(c.Policy).Behind,
		before:     map[int]place.GPU{},
		singletons: map[uint64]bool{},
		searched:   searches{},
	}
}

// restore sets the cluster to the state that it had before the plan.
func (p *planner) restore() {
	p.Behind, p.parts = nil, nil
	for k, g := range p.before {
		p.set(k, g)
	}
}

// placeQueue places the jobs of the queue, until one of them has to wait and no job behind it can be placed without a
// delay for it. After each job that backfill places, it tries the head of the queue again, since there may now be a
// better reservation.
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

// decided reports whether the k-th job needs no spots: it has some, or its user has another job in the plan.
func (p *planner) decided(k int) bool {
	return p.plan.Spots[k] != nil || p.singletons[p.jobs[k].SingletonKey]
}

// mustWait places the group of jobs at the head of the queue, or reserves room for it. It returns false if the next
// group becomes the head: this one is placed, or no room can be reserved for it.
func (p *planner) mustWait(head int, group []*Job) bool {
	if p.plan.Reserved != nil && len(group) > 1 {
		// The jobs that were placed behind the head have left its reservation as it was. A search for another
		// reservation would be most expensive for a het job.
		return true
	}
	p.plan.Reserved = nil
	placed, why := p.place(head, group, nil)
	if placed || p.keep(head, group) || !p.strict && p.unreservable(group) {
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

// maxPassed limits how many jobs that lack something else a plan passes over after a search for a reservation, since
// such a search may visit every node.
const maxPassed = 32

// place places a group of jobs beside the reservation r (nil: none), all or none. The first of them is the k-th of the
// queue. The group may have other nodes than in the queue. If there is no room, why is the answer of the policy.
func (p *planner) place(k int, group []*Job, r *Reservation) (placed bool, why place.Choice) {
	p.setBehind(k + len(group))
	all, why := p.FindAll(group, r)
	if all == nil {
		return false, why
	}
	for i, spots := range all {
		for _, s := range spots {
			p.offer(s, group[i])
		}
		p.plan.Spots[k+i] = spots
	}
	if key := group[0].SingletonKey; key != 0 {
		p.singletons[key] = true
	}
	return true, why
}

// setBehind sets the jobs that the policy may consider: those from the k-th on.
func (p *planner) setBehind(k int) {
	p.Behind = nil
	for _, j := range p.jobs[k:] {
		if len(p.Behind) == p.behind {
			return
		}
		if len(j.Wants) > 0 {
			p.Behind = append(p.Behind, j.request())
		}
	}
}

// offer adds the offer of a spot to a job to the plan, and makes the spot busy.
func (p *planner) offer(s Spot, j *Job) {
	if _, saved := p.before[s.GPU]; !saved {
		p.before[s.GPU] = p.Pool.GPU(s.GPU)
	}
	p.occupy(s, p.Now+j.RunTime)
	p.plan.Offers[s.GPU] = p.plan.Offers[s.GPU].With(s.Placement)
	profile := p.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)
	if as := RequestedAs(j.Wants, profile); as != profile {
		p.plan.AdvertisedAs[s] = as
	}
}

// filterByQueueOrder withdraws the offers that slurmctld would give to another job than the one for which they are
// planned. The first job that wants a profile gets it on the first node that offers it and on which the job may run.
// Suppose that an earlier job is planned on a later node, and may run on the node of this job too. This job then has to
// wait until the earlier job has started. If one component of a het job has to wait, all its components wait.
func (p *planner) filterByQueueOrder() {
	nodeOf := p.nodeOf()
	name := func(at Spot) string { return p.plan.Name(p.Pool.GPU(at.GPU).Model, at) }
	type wanting struct {
		job  *Job
		last int // the last node on which the job is planned; one more than all nodes if it has to wait
	}
	earlier := map[string][]wanting{} // by name
	for k, group := range byStart(p.jobs) {
		all := p.plan.Spots[k : k+len(group)]
		early := slices.ContainsFunc(slices.Concat(all...), func(at Spot) bool {
			return slices.ContainsFunc(earlier[name(at)], func(w wanting) bool {
				return nodeOf[at.GPU] < w.last && w.job.CanStartOn(nodeOf[at.GPU])
			})
		})
		for i, spots := range all {
			last := map[string]int{}
			for _, at := range spots {
				last[name(at)] = max(last[name(at)], nodeOf[at.GPU])
				if early {
					last[name(at)] = len(p.Nodes)
					p.plan.Offers[at.GPU] = p.plan.Offers[at.GPU].Without(at.Placement)
				}
			}
			for of, n := range last {
				earlier[of] = append(earlier[of], wanting{group[i], n})
			}
			if early {
				all[i] = nil
			}
		}
	}
}
