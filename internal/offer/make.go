package offer

import (
	"fmt"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// Plan is the result of Make.
type Plan struct {
	// Offers has one set of placements per GPU.
	Offers []mig.Layout
	// AdvertisedAs has the names of the placements that are offered under the profile that their job requested instead
	// of their own.
	AdvertisedAs map[Spot]string
	// Spots are, by job in the order of the queue, the spots of the job; nil: it has to wait.
	Spots [][]Spot
	// Reserved is the room that is reserved for the first job that has to wait; nil: no job has to wait.
	Reserved *Reservation
	// Kept is the room that is kept for a job that lacks something other than slices, and until when it is lent; nil:
	// none.
	Kept *Reservation
}

// Depth limits how many waiting jobs a plan considers. The value is the default of bf_max_job_test (slurm.conf(5)).
const Depth = 500

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
	plan := Plan{
		Offers:       make([]mig.Layout, c.Pool.Len()),
		AdvertisedAs: map[Spot]string{},
		Spots:        make([][]Spot, len(jobs)),
	}
	before := map[int]place.GPU{}
	c.parts = nil
	defer func() {
		c.Behind, c.parts = nil, nil
		for k, g := range before {
			c.set(k, g)
		}
	}()
	c.Ordered = strict
	inputs := place.InputsOf(c.Policy)
	// serve places the k-th job and those that start with it, in the form in which they are in group, if that is
	// possible.
	had := map[uint64]bool{} // the values of Turn of which a job is placed
	serve := func(k int, group []*Job, r *Reservation) (bool, place.Choice) {
		c.Behind = nil
		for _, j := range jobs[k+len(group):] {
			if len(c.Behind) == inputs.Behind {
				break
			}
			if len(j.Wants) > 0 {
				c.Behind = append(c.Behind, j.request())
			}
		}
		all, why := c.FindAll(group, r)
		for i, spots := range all {
			for _, s := range spots {
				if _, saved := before[s.GPU]; !saved {
					before[s.GPU] = c.Pool.GPU(s.GPU)
				}
				c.begin(s, c.Now+group[i].RunTime)
				plan.Offers[s.GPU] = plan.Offers[s.GPU].With(s.Placement)
				profile := c.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)
				if as := RequestedAs(group[i].Wants, profile); as != profile {
					plan.AdvertisedAs[s] = as
				}
			}
			plan.Spots[k+i] = spots
		}
		if all != nil && group[0].SingletonKey != 0 {
			had[group[0].SingletonKey] = true
		}
		return all != nil, why
	}
	searched, passed := searches{}, 0
	for head := 0; head < len(jobs); {
		if plan.Spots[head] != nil {
			head++
			plan.Reserved = nil
			continue
		}
		_, group := Components(jobs, head)
		if had[group[0].SingletonKey] {
			head += len(group)
			plan.Reserved = nil
			continue
		}
		if plan.Reserved != nil && len(group) > 1 {
			// The jobs that were placed behind the head have left its reservation as it was. A search for another
			// reservation would be most expensive for a het job.
			if !c.backfill(jobs, head, &plan, searched, had, serve) {
				break
			}
			continue
		}
		plan.Reserved = nil
		served, why := serve(head, group, nil)
		if !served && plan.Kept == nil &&
			slices.ContainsFunc(group, func(j *Job) bool { return len(j.DeferredNodes) > len(j.NoOfferNodes) }) {
			// Something else keeps the jobs from starting where there is room. Their slices are kept there and offered,
			// for one group of jobs in each plan, so that slurmctld can plan the other resources.
			if served, _ = serve(head, ifReady(group), nil); served {
				plan.Kept = c.kept(head, group, &plan)
			}
		}
		if served {
			continue
		}
		if !strict && c.hopeless(group) {
			// No reservation is possible, so the next job that has to wait for slices gets the reservation.
			head += len(group)
			continue
		}
		plan.Reserved = c.ReserveAll(group, why)
		plan.Reserved.Job = head
		if !strict && math.IsInf(plan.Reserved.At, 1) && c.deferred(group) && passed < maxPassed {
			passed++
			head += len(group)
			plan.Reserved = nil
			continue
		}
		if strict || !c.backfill(jobs, head, &plan, searched, had, serve) {
			break
		}
	}
	if !strict && plan.Kept != nil {
		c.lendReserved(&plan, jobs, had, serve)
	}
	waited := queue{}
	for k, j := range jobs {
		if plan.Spots[k] != nil || !had[j.SingletonKey] {
			waited.add(j)
		}
	}
	if !strict || plan.Reserved == nil {
		c.addSpeculative(&plan, waited)
	}
	c.serveInOrder(&plan, jobs)
	return plan
}

// Name returns the name under which a placement on a GPU of this GPU model is offered.
func (p Plan) Name(b *mig.Model, at Spot) string {
	if name, ok := p.AdvertisedAs[at]; ok {
		return name
	}
	return b.ProfileOf(at.Placement)
}

// serveInOrder removes the offers that slurmctld would give to another job than the one for which they are planned. The
// first job that wants a profile gets it on the first node that offers it and on which the job may run. Suppose that an
// earlier job is planned on a later node, and may run on the node of this job too. This job then has to wait until the
// earlier job has started. If one component of a het job has to wait, all its components wait.
func (c *Cluster) serveInOrder(plan *Plan, jobs []*Job) {
	nodeOf := c.nodeOf()
	name := func(at Spot) string { return plan.Name(c.Pool.GPU(at.GPU).Model, at) }
	type turn struct {
		job  *Job
		last int // the last node on which the job is planned; one more than all nodes if it has to wait
	}
	front := map[string][]turn{} // by name
	for k, group := range byStart(jobs) {
		all := plan.Spots[k : k+len(group)]
		early := slices.ContainsFunc(slices.Concat(all...), func(at Spot) bool {
			return slices.ContainsFunc(
				front[name(at)],
				func(t turn) bool { return nodeOf[at.GPU] < t.last && t.job.CanStartOn(nodeOf[at.GPU]) },
			)
		})
		for i, spots := range all {
			last := map[string]int{}
			for _, at := range spots {
				last[name(at)] = max(last[name(at)], nodeOf[at.GPU])
				if early {
					last[name(at)] = len(c.Nodes)
					plan.Offers[at.GPU] = plan.Offers[at.GPU].Without(at.Placement)
				}
			}
			for of, n := range last {
				front[of] = append(front[of], turn{group[i], n})
			}
			if early {
				all[i] = nil
			}
		}
	}
}

// backfill places the first group of jobs behind the head that does not delay the head. It returns false if there is
// none. A job that wants a profile for which an earlier job waits on the same node is not placed there, because
// slurmctld would give the slice to the earlier job, and that job could delay the head. After backfill has placed a
// job, Make searches for the head again, since there may now be a better reservation.
func (c *Cluster) backfill(
	jobs []*Job,
	head int,
	plan *Plan,
	searched searches,
	had map[uint64]bool,
	serve func(k int, group []*Job, r *Reservation) (bool, place.Choice),
) bool {
	waited := queue{}
	for i, group := range byStart(jobs[head:]) {
		k := head + i
		if i > Depth {
			break
		}
		if plan.Spots[k] != nil || had[group[0].SingletonKey] {
			continue
		}
		if i > 0 {
			if left := waited.leavesAll(c, plan, group); left != nil && searched.again(k, left, plan.Reserved) {
				if served, _ := serve(k, left, plan.Reserved); served {
					return true
				}
			}
		}
		for _, j := range group {
			waited.add(j)
		}
	}
	return false
}

// searches are the failed searches for jobs that need several slices, by the index of the first job.
type searches map[int]*search

// search is the last of these searches for some jobs, and how many there have been.
type search struct {
	jobs []*Job
	kept *Reservation
	n    int
}

// maxSearches limits how often a plan searches for the slices of a job behind the head. Such a search visits every node
// for each component of a het job. Without a limit it would be repeated after every job that is placed, 500 times in a
// plan.
const maxSearches = 8

// maxPassed limits how many jobs that lack something else a plan passes over after a search for a reservation, since
// such a search may visit every node.
const maxPassed = 32

// again reports whether to search for jobs that start together, and records the search. It returns false if the same
// search has failed before, since there is less room now, and after maxSearches searches. The next plan begins with new
// counts.
func (t searches) again(k int, jobs []*Job, r *Reservation) bool {
	if len(jobs) == 1 && jobs[0].slices() == 1 {
		return true
	}
	a := t[k]
	if a == nil {
		a = &search{}
		t[k] = a
	}
	same := a.n > 0 && a.kept.At == r.At && slices.Equal(a.kept.Spots, r.Spots) &&
		slices.EqualFunc(a.jobs, jobs, func(x, y *Job) bool { return slices.Equal(x.EligibleNodes, y.EligibleNodes) })
	if same || a.n == maxSearches {
		return false
	}
	a.jobs, a.kept = jobs, r
	a.n++
	return true
}

// NewCluster returns a cluster with the GPUs of these nodes, in the order in which slurmctld tries the nodes.
func NewCluster(policy place.Policy, nodes ...[]place.GPU) *Cluster {
	c := &Cluster{Policy: policy}
	n := 0
	for _, gpus := range nodes {
		on := make([]int, len(gpus))
		for k := range on {
			on[k] = n + k
		}
		c.Nodes, n = append(c.Nodes, on), n+len(gpus)
	}
	c.Pool = place.NewPool(slices.Concat(nodes...))
	return c
}

// Counts returns the number of offered placements by the name under which they are offered.
func (p Plan) Counts(gpus []place.GPU) map[string]int {
	n := map[string]int{}
	for k, l := range p.Offers {
		for i := range l.Indices() {
			n[p.Name(gpus[k].Model, Spot{GPU: k, Placement: i})]++
		}
	}
	return n
}

// Check returns an error if the offers cannot all be carved: every offer must fit beside everything that is busy and
// every other offer.
func (p Plan) Check(gpus []place.GPU) error {
	if len(p.Offers) != len(gpus) {
		return fmt.Errorf("the plan has offers for %d GPUs, the node has %d", len(p.Offers), len(gpus))
	}
	for i, g := range gpus {
		switch offers := p.Offers[i]; {
		case offers == 0:
		case g.Model == nil:
			return fmt.Errorf("GPU %d: offers on a GPU that is not managed", i)
		case offers&g.Busy != 0:
			return fmt.Errorf("GPU %d: %s is both busy and on offer", i, g.Model.Draw(offers&g.Busy))
		case offers&^g.Offerable != 0:
			return fmt.Errorf("GPU %d: %s is not among the offerable placements", i, g.Model.Draw(offers&^g.Offerable))
		case !g.Model.Legal(g.Busy | offers):
			return fmt.Errorf(
				"GPU %d: busy %s and offers %s do not form a legal layout",
				i,
				g.Model.List(g.Busy),
				g.Model.List(offers),
			)
		case g.Model.Occupied(offers)&g.Blocked != 0:
			return fmt.Errorf("GPU %d: offers %s overlap blocked units", i, g.Model.List(offers))
		}
	}
	return nil
}

// on returns the first of the names of a want that is a profile of one of the GPUs.
func (w Want) on(gpus []place.GPU) string {
	for _, name := range append([]string{w.Profile}, w.Alternatives...) {
		if slices.ContainsFunc(gpus, func(g place.GPU) bool {
			if g.Model == nil {
				return false
			}
			_, ok := g.Model.ProfileIndex(name)
			return ok
		}) {
			return name
		}
	}
	return w.Profile
}

// Pack finds placements for all demands at the same time beside the busy ones, by job. It is needed after a restart,
// when jobs hold what an earlier plan offered and that plan is lost. It returns false only if no such placements exist
// ([place.Pack]).
func Pack(gpus []place.GPU, demands []*Job) (map[uint32][]Spot, bool) {
	largest := NewCluster(nil, gpus)
	var jobs []uint32
	var profiles []string
	for _, d := range demands {
		for _, w := range largest.bySize(d.Wants) {
			for range w.Count {
				jobs, profiles = append(jobs, d.ID), append(profiles, w.on(gpus))
			}
		}
	}
	at, ok := place.Pack(gpus, profiles)
	if !ok {
		return nil, false
	}
	spots := map[uint32][]Spot{}
	for k, job := range jobs {
		spots[job] = append(spots[job], at[k])
	}
	return spots, true
}
