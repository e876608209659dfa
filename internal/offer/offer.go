// Package offer decides what nodes publish: for each GPU a set of free placements that, together with what is busy
// there, is a legal layout, so that whatever slurmctld starts, in any order, can be carved. Which jobs these are for,
// and in what order, is why one plan is better than another: docs/internals.md, "Rules for offers".
//
//	Cluster      the GPUs of one node or of many, and the policy; Find places a job on them
//	Reservation  what is kept for the first who cannot start
//	Make         the plan: the queue, then what is spare
//	Plan.Check   that it is sound
//
// It is pure: values in, a plan out; no clock, no I/O.
package offer

import (
	"fmt"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// GPU is what a plan must know of one GPU.
type GPU struct {
	Model *mig.Model
	// Busy are the placements that are taken: leased, promised to a job that slurmctld has started, or somebody else's.
	Busy mig.Layout
	// Blocked are units taken by something that is no placement of this GPU model, or by a stuck instance.
	Blocked uint64
	// Ends are, by placement, when the busy ones are expected to end, in seconds on the scale of the cluster's Now;
	// +Inf: unknown. nil: all unknown.
	Ends []float64
	// Idle are existing instances that nobody holds: handing one out costs nothing, and one in the way can be
	// destroyed.
	Idle mig.Layout
	// Offerable are the placements that may be put on offer (the site's profiles).
	Offerable mig.Layout
}

// Hold counts a placement as busy until end (seconds; +Inf: unknown); idle instances in its way will have to go.
func (g *GPU) Hold(placement int, end float64) {
	g.Idle &^= place.GPU{Model: g.Model, Layout: g.Busy, Blocked: g.Blocked, Idle: g.Idle}.InTheWay(placement)
	g.Idle = g.Idle.Without(placement)
	g.Busy = g.Busy.With(placement)
	g.Expect(placement, end)
}

// Expect says when a busy placement is expected to end (seconds; +Inf: unknown).
func (g *GPU) Expect(placement int, end float64) {
	if g.Ends == nil {
		if math.IsInf(end, 1) {
			return
		}
		g.Ends = slices.Repeat([]float64{math.Inf(1)}, len(g.Model.Placements))
	}
	g.Ends[placement] = end
}

// Plan is what may be given out.
type Plan struct {
	// Offers has one set of placements per GPU.
	Offers []mig.Layout
	// As are the names of those that are not on offer as what they are, but as what their job asks for.
	AdvertisedAs map[Spot]string
	// Spots are, by job in the order they were given, where it would be placed; nil: it has to wait.
	Spots [][]Spot
	// Reserved is what is kept for the first that has to wait; nil: nobody has to.
	Reserved *Reservation
	// Kept is what is kept for a job that lacks something else than slices, and until when it is lent; nil: nothing.
	Kept *Reservation
}

// Depth is how many waiting jobs are looked at: slurmctld's default for bf_max_job_test (slurm.conf(5)).
const Depth = 500

// Make plans the offers. The waiting jobs come first, in their order, each placed by the policy. The first that has to
// wait is reserved what is free first for it, or what the policy holds it for; those behind it may have what they can
// give back before then, or, if strict, nothing.
//
// Slurmctld knows profiles and nodes, nothing else. It gives what is on offer to the first who wants it, on the first
// node that has it, and so what is offered is what it will give out as planned: the rest has its turn with the next
// plan.
//
// What nobody waits for is offered to whoever comes next, but only profiles that nobody waits for: slurmctld would give
// a job that has to wait what the policy denied it, or a job that can start another place than the policy's. The
// cluster's pool is left as it was.
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
	// serve places the k-th and those that start with it, as they are in group, if that can be.
	had := map[uint64]bool{} // the turns that are taken
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
				c.begin(s, c.Now+group[i].Runs)
				plan.Offers[s.GPU] = plan.Offers[s.GPU].With(s.Placement)
				if profile := c.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement); RequestedAs(
					group[i].Wants,
					profile,
				) != profile {
					plan.AdvertisedAs[s] = RequestedAs(group[i].Wants, profile)
				}
			}
			plan.Spots[k+i] = spots
		}
		if all != nil && group[0].Turn != 0 {
			had[group[0].Turn] = true
		}
		return all != nil, why
	}
	tried, passed := tries{}, 0
	for head := 0; head < len(jobs); {
		if plan.Spots[head] != nil {
			head++
			plan.Reserved = nil
			continue
		}
		_, group := Components(jobs, head)
		if had[group[0].Turn] {
			head += len(group)
			plan.Reserved = nil
			continue
		}
		if plan.Reserved != nil && len(group) > 1 {
			// What was served behind it has left its reservation as it was, and to find another costs most for a het
			// job.
			if !c.backfill(jobs, head, &plan, tried, had, serve) {
				break
			}
			continue
		}
		plan.Reserved = nil
		served, why := serve(head, group, nil)
		if !served && plan.Kept == nil &&
			slices.ContainsFunc(group, func(j *Job) bool { return len(j.DeferredNodes) > len(j.Unkept) }) {
			// Something else keeps it from where there is room for it. Its slices are kept there for one such job, on
			// offer, so that slurmctld can plan the rest for it.
			if served, _ = serve(head, atOnce(group), nil); served {
				plan.Kept = c.kept(head, group, &plan)
			}
		}
		if served {
			continue
		}
		if !strict && c.hopeless(group) {
			// Nothing is reserved for it, so the next job that has to wait for slices has its reservation.
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
		if strict || !c.backfill(jobs, head, &plan, tried, had, serve) {
			break
		}
	}
	if !strict && plan.Kept != nil {
		c.lendReserved(&plan, jobs, had, serve)
	}
	waited := queue{}
	for k, j := range jobs {
		if plan.Spots[k] != nil || !had[j.Turn] {
			waited.add(j)
		}
	}
	if !strict || plan.Reserved == nil {
		c.addSpeculative(&plan, waited)
	}
	c.serveInOrder(&plan, jobs)
	return plan
}

// Name is what a placement on a GPU of this GPU model is on offer as.
func (p Plan) Name(b *mig.Model, at Spot) string {
	if name, ok := p.AdvertisedAs[at]; ok {
		return name
	}
	return b.ProfileOf(at.Placement)
}

// serveInOrder takes off offer what slurmctld would give to another than it was planned for. Of those who want a
// profile the first gets it on the first node that has it and that he may run on: who is planned on a node on which one
// in front of him may run too, who is planned on a later one, has his turn when that one has started. The components of
// a het job have theirs together.
func (c *Cluster) serveInOrder(plan *Plan, jobs []*Job) {
	nodeOf := c.nodeOf()
	name := func(at Spot) string { return plan.Name(c.Pool.GPU(at.GPU).Model, at) }
	type turn struct {
		job  *Job
		last int // node; after all others if it is not its turn either
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

// backfill serves the first behind the head that does not delay it, false if nobody can be: nobody who wants what
// somebody in front of him waits for and may have on the same node, since slurmctld would give it to him, who would
// delay the head. Then the head is asked again, and may get another reservation: what it is to wait for may have become
// better.
func (c *Cluster) backfill(
	jobs []*Job,
	head int,
	plan *Plan,
	tried tries,
	had map[uint64]bool,
	serve func(k int, group []*Job, r *Reservation) (bool, place.Choice),
) bool {
	waited := queue{}
	for i, group := range byStart(jobs[head:]) {
		k := head + i
		if i > Depth {
			break
		}
		if plan.Spots[k] != nil || had[group[0].Turn] {
			continue
		}
		if i > 0 {
			if left := waited.leavesAll(c, plan, group); left != nil && tried.again(k, left, plan.Reserved) {
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

// tries are the searches in vain for jobs that need several slices, by the place of the first in the queue.
type tries map[int]*attempt

// attempt is the last of these searches, and how many there have been.
type attempt struct {
	jobs []*Job
	kept *Reservation
	n    int
}

// maxTries limits how often one plan searches for the slices of a job behind the head. Such a search looks at every
// node, for each component of a het job, and would be repeated whenever another job has been served: 500 times in one
// plan.
const maxTries = 8

// maxPassed limits how many jobs that lack something else are passed over in one plan after a search for a reservation.
const maxPassed = 32

// again reports whether jobs that start at the same time are to be searched for, and notes it. They are not where the
// same search was in vain before: since then there is less room. Nor are they after maxTries searches; the next plan
// begins anew.
func (t tries) again(k int, jobs []*Job, r *Reservation) bool {
	if len(jobs) == 1 && jobs[0].slices() == 1 {
		return true
	}
	a := t[k]
	if a == nil {
		a = &attempt{}
		t[k] = a
	}
	same := a.n > 0 && a.kept.At == r.At && slices.Equal(a.kept.Spots, r.Spots) &&
		slices.EqualFunc(a.jobs, jobs, func(x, y *Job) bool { return slices.Equal(x.EligibleNodes, y.EligibleNodes) })
	if same || a.n == maxTries {
		return false
	}
	a.jobs, a.kept = jobs, r
	a.n++
	return true
}

// NewCluster is the GPUs of these nodes, in the order in which slurmctld would take the nodes.
func NewCluster(policy place.Policy, nodes ...[]GPU) *Cluster {
	c := &Cluster{Policy: policy}
	var state []place.GPU
	for _, gpus := range nodes {
		var on []int
		for _, g := range gpus {
			on = append(on, len(state))
			state = append(
				state,
				place.GPU{Model: g.Model, Layout: g.Busy, Blocked: g.Blocked, Idle: g.Idle, Ends: g.Ends},
			)
			c.Offerable = append(c.Offerable, g.Offerable)
		}
		c.Nodes = append(c.Nodes, on)
	}
	c.Pool = place.NewPool(state)
	return c
}

// Counts is the number of placements on offer by name.
func (p Plan) Counts(gpus []GPU) map[string]int {
	n := map[string]int{}
	for k, l := range p.Offers {
		for i := range l.Indices() {
			n[p.Name(gpus[k].Model, Spot{GPU: k, Placement: i})]++
		}
	}
	return n
}

// Check says what makes a plan unsound, or nil: every offer must fit beside everything that is busy and every other
// offer.
func (p Plan) Check(gpus []GPU) error {
	if len(p.Offers) != len(gpus) {
		return fmt.Errorf("offers for %d GPUs of %d", len(p.Offers), len(gpus))
	}
	for i, g := range gpus {
		switch offers := p.Offers[i]; {
		case offers == 0:
		case g.Model == nil:
			return fmt.Errorf("GPU %d: offers on a GPU that is not managed", i)
		case offers&g.Busy != 0:
			return fmt.Errorf("GPU %d: %s is busy and on offer", i, g.Model.Draw(offers&g.Busy))
		case offers&^g.Offerable != 0:
			return fmt.Errorf("GPU %d: %s is not the site's to offer", i, g.Model.Draw(offers&^g.Offerable))
		case !g.Model.Legal(g.Busy | offers):
			return fmt.Errorf(
				"GPU %d: busy %s and offers %s are no legal layout",
				i,
				g.Model.List(g.Busy),
				g.Model.List(offers),
			)
		case g.Model.Occupied(offers)&g.Blocked != 0:
			return fmt.Errorf("GPU %d: offers %s on blocked units", i, g.Model.List(offers))
		}
	}
	return nil
}

// on is the first of a want's names that a GPU has.
func (w Want) on(gpus []GPU) string {
	for _, name := range append([]string{w.Profile}, w.Alternatives...) {
		if slices.ContainsFunc(gpus, func(g GPU) bool {
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

// Pack finds placements for all demands at once beside what is busy, or none: the question after a restart, when jobs
// hold what an earlier plan offered and that plan is gone. When it finds none there are none ([place.Pack]).
func Pack(gpus []GPU, demands []*Job) (map[uint32][]Spot, bool) {
	state := make([]place.GPU, len(gpus))
	for i, g := range gpus {
		state[i] = place.GPU{Model: g.Model, Layout: g.Busy, Blocked: g.Blocked, Idle: g.Idle}
	}
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
	at, ok := place.Pack(state, profiles)
	if !ok {
		return nil, false
	}
	spots := map[uint32][]Spot{}
	for k, job := range jobs {
		spots[job] = append(spots[job], at[k])
	}
	return spots, true
}
