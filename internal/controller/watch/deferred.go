package watch

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/part"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// Whenever a job starts or ends, speculative offers may move to other nodes. For each move, the planner must write two
// parts and two agents must publish. As long as slurmctld can start every waiting job on the present offers, the
// planner therefore writes a changed part immediately only if the part offers a profile that is not currently offered
// by any node. It writes the other parts with the next heartbeat. An old part is as safe as a new one, because the
// agent offers only those placements of a part that fit alongside its leases.

// update is a node and its new Comment. member is its index in the plan, or -1.
type update struct {
	node    slurm.Node
	comment string
	member  int
	own     part.Part
}

// deferred maps each node whose part is deferred until the next heartbeat to the offers that the agent makes from its
// present part. The offers are nil if the agent is about to publish the start of a job.
type deferred map[string][]part.Offer

// deferParts returns the parts that can be deferred until the next heartbeat.
func deferParts(v *plan.View, made offer.Plan, all []update) deferred {
	present, waits := deferred{}, deferred{}
	for _, u := range all {
		offers, ok := presentOffers(v, u)
		if !ok || u.node.Is("POWERED_DOWN") { // the planner itself makes the offers of a node that is powered down
			continue
		}
		present[u.node.Name] = offers
		switch {
		case starting(v, u):
			waits[u.node.Name] = nil
		case u.comment != u.node.Comment:
			waits[u.node.Name] = offers
		}
	}
	if !startable(v, made, all, present) {
		return nil
	}
	// Writing a part withdraws the present offers on its node, so other parts may have to be written as well.
	for n := -1; n != len(waits); {
		n = len(waits)
		covered := map[string]bool{}
		for _, u := range all {
			switch offers, ok := waits[u.node.Name]; {
			case !ok:
				cover(covered, u.own.Offers, nil)
			case offers == nil:
				cover(covered, present[u.node.Name], nil)
			default:
				cover(covered, offers, u.node.Free("mig"))
			}
		}
		for _, u := range all {
			if slices.ContainsFunc(u.own.Offers, func(o part.Offer) bool { return !covered[name(o)] }) {
				delete(waits, u.node.Name)
			}
		}
	}
	return waits
}

// starting reports whether a job has started on a node that does not yet show the job's slices in Extra. In this case,
// the node's part is based on an old state, and the agent will publish the new state soon.
func starting(v *plan.View, u update) bool {
	used, busy := 0, 0
	for _, g := range u.node.GresUsed.Named("mig") {
		if g.Type != slurm.ClosedType {
			used += g.Count
		}
	}
	for _, k := range v.Nodes[u.member] {
		busy += v.Pool.GPU(k).Busy.Count()
	}
	return used > busy
}

// name returns the profile name under which a placement is offered.
func name(o part.Offer) string { return cmp.Or(o.As, o.Profile) }

// cover adds the profiles of offers to covered. If free is not nil, it adds only profiles for which slurmctld shows a
// free slice.
func cover(covered map[string]bool, offers []part.Offer, free map[string]int) {
	for _, o := range offers {
		if free == nil || free[name(o)] > 0 {
			covered[name(o)] = true
		}
	}
}

// presentOffers returns the offers that the agent can make from the node's present part. ok is false if the new part
// must be written because it differs from the present part in more than the offers and the waiting jobs.
func presentOffers(v *plan.View, u update) (offers []part.Offer, ok bool) {
	was, err := part.Parse(part.In(u.node.Comment))
	if err != nil || u.member < 0 || plan.BackIn(u.node.Comment) != plan.BackIn(u.comment) || was.Beat != u.own.Beat ||
		!slices.Equal(was.Held, u.own.Held) || !slices.Equal(was.Stray, u.own.Stray) ||
		!slices.EqualFunc(released(was), released(u.own), sameJob) {
		return nil, false
	}
	offers = []part.Offer{}
	taken := map[int]mig.Layout{}
	for _, o := range was.Offers {
		if o.GPU >= len(v.Nodes[u.member]) || v.Pool.GPU(v.Nodes[u.member][o.GPU]).Model == nil {
			return nil, false
		}
		g := v.Pool.GPU(v.Nodes[u.member][o.GPU])
		at, found := g.Model.Placement(o.Profile, o.Start)
		if !found {
			return nil, false
		}
		if g.Model.Fits(g.Busy|taken[o.GPU], at) && g.Offerable.Has(at) && g.Model.Units(at)&g.Blocked == 0 {
			taken[o.GPU] = taken[o.GPU].With(at)
			offers = append(offers, o)
		}
	}
	return offers, true
}

// released returns the held jobs that the agent may release, with their spots.
func released(p part.Part) (all []part.Job) {
	for _, j := range p.Jobs {
		if slices.Contains(p.Held, j.ID) {
			all = append(all, j)
		}
	}
	return all
}

func sameJob(a, b part.Job) bool { return a.ID == b.ID && slices.Equal(a.Spots, b.Spots) }

// startable reports whether slurmctld can start every waiting job on the present offers. It returns false if any of the
// jobs requests several slices or nodes. The nodes may differ from those in the plan, because slurmctld starts a job as
// soon as any node offers its slice.
func startable(v *plan.View, made offer.Plan, all []update, present deferred) bool {
	if made.Reserved != nil || made.Kept != nil {
		return false
	}
	type slice struct{ profile, as string }
	free := make([]map[slice]int, len(v.Members))
	for _, u := range all {
		if u.member < 0 {
			continue
		}
		free[u.member] = map[slice]int{}
		shown := u.node.Free("mig")
		for _, o := range present[u.node.Name] {
			if shown[name(o)]--; shown[name(o)] >= 0 {
				free[u.member][slice{o.Profile, o.As}]++
			}
		}
	}
	for k, j := range v.Jobs {
		if len(made.Spots[k]) != 1 || v.Waiting[k].HetJob != 0 {
			return false
		}
		at := made.Spots[k][0]
		want := slice{v.Pool.GPU(at.GPU).Model.ProfileOf(at.Placement), made.AdvertisedAs[at]}
		on := -1
		for m, of := range free {
			if on < 0 && of[want] > 0 && j.CanStartOn(m) {
				on = m
			}
		}
		if on < 0 {
			return false
		}
		free[on][want]--
	}
	return true
}
