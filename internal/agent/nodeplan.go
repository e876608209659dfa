package agent

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"caelum/internal/api"
	"caelum/internal/eligible"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// nodePlan is this node's part of the plan for the cluster, and the state on which the plan is based.
type nodePlan struct {
	version  int  // node.version when the plan was made
	withheld bool // true if the node offers no slices because slurmd has not registered
	first    bool // true if this node is the first in the plan
	gpus     []place.GPU
	holders  map[offer.Spot]uint32 // the jobs that hold the busy slices, if the node publishes them (publishesJobs)
	text     string                // the state of the GPUs, as published for the other agents
	back     string                // the jobs that the plan places after all other jobs, for caelum explain
	mine     offer.Plan            // this node's part of the plan
	served   []uint32              // the jobs for which this node offers every slice planned for them here
	reserved *api.Reservation
	offers   map[string]int
	pending  map[uint32][]offer.Spot // the new spots of unplaced pending leases
	next     next
	planned  map[uint32][][]offer.Spot // see node.planned
	held     map[string]int            // the result of slicesHeld when the plan was made
}

// plan returns this node's part of the plan for all nodes. Unless the agent follows the watcher's plan (follow.go), it
// makes the plan from the current state. If slurmd has not registered, or if slurmctld does not start jobs on the node,
// the part contains the slices that jobs hold but no offers. Because prologs can change the state while plan is
// running, apply checks that the state is still the same.
func (p *publisher) plan(in input, node slurm.Node) nodePlan {
	p.mu.Lock()
	d := nodePlan{version: p.version, withheld: node.Unregistered, gpus: p.view()}
	d.pending = p.placePending(d.gpus)
	d.held = p.slicesHeld()
	if p.publishesJobs() {
		d.holders = p.holders()
	}
	undercounted := p.undercounted(node)
	p.mu.Unlock()
	d.text = p.text(d.gpus)
	nothing := offer.Plan{Offers: make([]mig.Layout, len(d.gpus))}
	d.mine = nothing
	if in.part != nil {
		p.planFromPart(&d, node, *in.part)
	} else {
		p.planAll(&d, in.Snapshot, node)
	}
	if undercounted {
		d.next = next{}
	}
	if err := d.mine.Check(d.gpus); err != nil {
		// An unsound plan indicates a bug in the planner. The agent then offers no slices, so that no slice is
		// allocated to two jobs.
		p.log.WithError(err).Error("the plan is unsound; offering no slices; report this bug")
		d.mine, d.served, d.next = nothing, nil, next{}
	}
	d.offers = d.mine.Counts(d.gpus)
	if !maps.Equal(d.offers, p.offered) {
		p.offered, p.offersSince = d.offers, p.now()
		d.text = p.text(d.gpus)
	}
	return d
}

// planAll makes the plan for all nodes and sets the fields of d that belong to this node's part.
func (p *publisher) planAll(d *nodePlan, snapshot plan.Snapshot, node slurm.Node) {
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	for k := range snapshot.Nodes {
		if snapshot.Nodes[k].Name == node.Name {
			extra := plan.WithNVLink(plan.WithState(node.Extra, d.text), d.gpus)
			snapshot.Nodes[k].Extra = plan.WithJobs(extra, d.gpus, d.holders)
		}
	}
	v := plan.New(
		p.unstarted.Reorder(snapshot),
		p.settings,
		func(n slurm.Node) bool { return n.Name != node.Name && p.unresponsive.LeftOut(n, snapshot.At) },
	)
	all := v.Plan()
	p.unresponsive.Record(v, all, node.Name, snapshot.At)
	p.unstarted.Record(v, all, snapshot.At)
	d.back = p.unstarted.Back(node.Name, snapshot.At)
	if me := v.Member(node.Name); me >= 0 {
		d.first = me == 0
		d.mine = p.carry(d.gpus, v, all, me)
		d.served, d.reserved = p.servedAndReserved(v, all, me, *d)
		if d.first {
			for _, w := range snapshot.HeldElsewhere() {
				d.served = append(d.served, w.ID)
			}
		}
		d.planned = plannedHere(v, all, me, *d)
		d.next = nextOn(v, all, me)
	} else if eligible.Schedulable(node) && !node.Unregistered {
		p.log.WithField("extra", d.text).
			Error("couldn't parse the state that this node publishes; offering no slices; report this bug")
	}
}

// text returns the node's state as the agent publishes it in Extra, which every user can read. All agents, including
// this one, base their plans on the published state.
func (p *publisher) text(gpus []place.GPU) string {
	return plan.Text(plan.State{GPUs: gpus, Since: p.offersSince, Private: p.hidesJobs()})
}

// carry converts this node's part of the plan to the GPU models that its driver reports. These models may have profiles
// that the node does not publish. Offers that overlap an instance of an unpublished profile are omitted.
func (p *publisher) carry(gpus []place.GPU, v *plan.View, all offer.Plan, me int) offer.Plan {
	mine := offer.Plan{Offers: make([]mig.Layout, len(gpus)), AdvertisedAs: map[offer.Spot]string{}}
	for k, on := range v.Offers(all, me) {
		g := gpus[k]
		if g.Model == nil {
			continue
		}
		from := v.Pool.GPU(v.Nodes[me][k]).Model
		for i := range on.Indices() {
			there, _ := g.Model.Carry(from, mig.Layout(0).With(i))
			for j := range there.Indices() {
				if !g.Model.Fits(g.Busy|mine.Offers[k], j) || g.Model.Units(j)&g.Blocked != 0 {
					continue
				}
				mine.Offers[k] = mine.Offers[k].With(j)
				if name, ok := all.AdvertisedAs[offer.Spot{GPU: v.Nodes[me][k], Placement: i}]; ok {
					mine.AdvertisedAs[offer.Spot{GPU: k, Placement: j}] = name
				}
			}
		}
	}
	return mine
}

// servedAndReserved returns the jobs for which this node, v.Nodes[me], offers every slice that the plan assigns to them
// here, and the slices that the plan reserves on the node.
func (p *publisher) servedAndReserved(
	v *plan.View, all offer.Plan, me int, d nodePlan,
) (served []uint32, reserved *api.Reservation) {
	on := v.Nodes[me]
	here := func(s offer.Spot) bool { return slices.Contains(on, s.GPU) }
	missing := func(s offer.Spot) bool {
		if !here(s) {
			return false
		}
		k := s.GPU - on[0]
		own, _ := d.gpus[k].Model.Carry(v.Pool.GPU(s.GPU).Model, mig.Layout(0).With(s.Placement))
		return own == 0 || d.mine.Offers[k]&own == 0
	}
	for k, spots := range all.Spots {
		if slices.ContainsFunc(spots, here) && !slices.ContainsFunc(spots, missing) {
			served = append(served, v.Jobs[k].ID)
		}
	}
	r := all.Reserved
	if r == nil || math.IsInf(r.At, 1) || !slices.ContainsFunc(r.Spots, here) {
		return served, nil
	}
	reserved = &api.Reservation{Job: v.Jobs[r.Job].ID, At: int64(r.At)}
	for _, s := range r.Spots {
		if here(s) {
			b := v.Pool.GPU(s.GPU).Model
			pl := b.Placements[s.Placement]
			reserved.Slices = append(
				reserved.Slices,
				api.ReservedSlice{
					GPU:       s.GPU - on[0],
					Placement: api.Placement{Profile: b.Profiles[pl.Profile].Name, Start: pl.Start, Size: pl.Size},
				},
			)
		}
	}
	return served, reserved
}

// plannedHere returns the new value of node.planned for a plan.
func plannedHere(v *plan.View, all offer.Plan, me int, d nodePlan) map[uint32][][]offer.Spot {
	planned := map[uint32][][]offer.Spot{}
	on := v.Nodes[me]
	for k, spots := range all.Spots {
		var here []offer.Spot
		for _, s := range spots {
			if !slices.Contains(on, s.GPU) {
				continue
			}
			g := s.GPU - on[0]
			own, _ := d.gpus[g].Model.Carry(v.Pool.GPU(s.GPU).Model, mig.Layout(0).With(s.Placement))
			for i := range own.Indices() {
				here = append(here, offer.Spot{GPU: g, Placement: i})
			}
		}
		if here != nil {
			id := cmp.Or(v.Waiting[k].ArrayJob, v.Jobs[k].ID)
			planned[id] = append(planned[id], here)
		}
	}
	return planned
}

// apply makes the given plan the current plan. If the state has changed since the plan was made, it changes nothing and
// returns false.
func (n *node) apply(d nodePlan) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.version != d.version {
		return false
	}
	n.offers, n.as, n.planned = d.mine.Offers, d.mine.AdvertisedAs, d.planned
	n.reserved, n.next = d.reserved, d.next
	for job, spots := range d.pending {
		n.pending[job].spots = spots
	}
	return true
}
