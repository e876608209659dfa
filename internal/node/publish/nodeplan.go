package publish

import (
	"maps"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/part"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/node/api"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// nodePlan is this node's part of the plan for the cluster, and the state on which the plan is based.
type nodePlan struct {
	version  int  // state.Node.Version when the plan was made
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
	hiding   bool                    // true if the profiles without offers are hidden (hide.go)
	pending  map[uint32][]offer.Spot // the new spots of unplaced pending leases
	next     state.Next
	planned  map[uint32][][]offer.Spot // see state.PlanPart
	held     map[string]int            // the result of SlicesHeld when the plan was made
}

// plan returns this node's part of the plan for all nodes. Unless the agent follows the watcher's plan (follow.go), it
// makes the plan from the current state. If slurmd has not registered, or if slurmctld does not start jobs on the node,
// the part contains the slices that jobs hold but no offers. Because prologs can change the state while plan is
// running, apply checks that the state is still the same.
func (p *Publisher) plan(in input, node slurm.Node) nodePlan {
	p.Node.Lock()
	d := nodePlan{version: p.Node.Version, withheld: node.Unregistered, gpus: p.Node.View()}
	d.pending = p.Node.PlacePending(d.gpus)
	d.held = p.Node.SlicesHeld()
	if p.PublishesJobs() {
		d.holders = p.Node.Holders()
	}
	undercounted := p.undercounted(node)
	p.Node.Unlock()
	d.text = p.text(d.gpus)
	nothing := offer.Plan{Offers: make([]mig.Layout, len(d.gpus))}
	d.mine = nothing
	if in.part != nil {
		p.planFromPart(&d, node, *in.part)
	} else {
		p.planAll(&d, in.Snapshot, node)
	}
	if undercounted {
		d.next = state.Next{}
	}
	if err := d.mine.Check(d.gpus); err != nil {
		// An unsound plan indicates a bug in the planner. The agent then offers no slices, so that no slice is
		// allocated to two jobs.
		p.Log.WithError(err).Error("the plan is unsound; offering no slices; report this bug")
		d.mine, d.served, d.next = nothing, nil, state.Next{}
	}
	d.offers = d.mine.Counts(d.gpus)
	d.setHiding(p.preempts)
	if !maps.Equal(d.offers, p.offered) {
		p.offered, p.offersSince = d.offers, p.Node.Now()
		d.text = p.text(d.gpus)
	}
	return d
}

// planAll makes the plan for all nodes and sets the fields of d that belong to this node's part.
func (p *Publisher) planAll(d *nodePlan, snapshot plan.Snapshot, node slurm.Node) {
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	for k := range snapshot.Nodes {
		if snapshot.Nodes[k].Name == node.Name {
			extra := plan.WithNVLink(plan.WithState(node.Extra, d.text), d.gpus)
			snapshot.Nodes[k].Extra = plan.WithJobs(extra, d.gpus, d.holders)
		}
	}
	v := plan.New(
		p.unstarted.Reorder(snapshot),
		p.Node.Settings,
		func(n slurm.Node) bool { return n.Name != node.Name && p.unresponsive.LeftOut(n, snapshot.At) },
	)
	all := v.Plan()
	p.unresponsive.Record(v, all, node.Name, snapshot.At)
	p.unstarted.Record(v, all, snapshot.At)
	d.back = p.unstarted.Back(node.Name, snapshot.At)
	if me := v.Member(node.Name); me >= 0 {
		d.first = me == 0
		d.set(part.Of(v, all, me))
		if d.first {
			for _, w := range snapshot.HeldElsewhere() {
				d.served = append(d.served, w.ID)
			}
		}
		d.next = nextOn(v, all, me)
	} else if eligible.Schedulable(node) && !node.Unregistered {
		p.Log.WithField("extra", d.text).
			Error("couldn't parse the state that this node publishes; offering no slices; report this bug")
	}
}

// text returns the node's state as the agent publishes it in Extra, which every user can read. All agents, including
// this one, base their plans on the published state.
func (p *Publisher) text(gpus []place.GPU) string {
	return plan.Text(plan.State{GPUs: gpus, Since: p.offersSince, Private: p.HidesJobs()})
}

// part returns the part of d that prologs and epilogs use.
func (d *nodePlan) part() state.PlanPart {
	return state.PlanPart{
		Offers: d.mine.Offers, AdvertisedAs: d.mine.AdvertisedAs, Planned: d.planned, Reserved: d.reserved,
		Next: d.next,
	}
}
