package agent

import (
	"slices"

	"caelum/internal/api"
	"caelum/internal/offer"
	"caelum/internal/plan"
)

// A slice that is released and that the first waiting job asks for needs no plan: it is what slurmctld counts as free
// once the epilog is over. It is put on offer in the epilog itself, which then does not wait for slurmctld. The plan
// that follows is made as for any other change.

// next is what the jobs at the head of the queue wait for, those that the plan in force has no room for: one slice of a
// profile, and how many such jobs follow each other.
type next struct {
	profile string
	jobs    int
}

// nextOn returns next for a member of a plan: nothing unless the first job that has to wait wants one slice, of a
// profile that the member offers under its own name, and could have it there.
func nextOn(v *plan.View, all offer.Plan, me int) (n next) {
	for k, spots := range all.Spots {
		if spots != nil {
			continue
		}
		w := v.Waiting[k]
		wants := v.Jobs[k].Wants
		if len(wants) != 1 || wants[0].Count != 1 || wants[0].Alternatives != nil || w.NumNodes > 1 || w.HetJob != 0 ||
			n.jobs > 0 && wants[0].Profile != n.profile || !v.Members[me].Accepts(w) {
			break
		}
		n = next{wants[0].Profile, n.jobs + 1}
	}
	return n
}

// offerAgain puts the slice of a lease that has just been dropped on offer, if the next waiting job asks for one. The
// caller holds a.mu.
func (a *Agent) offerAgain(lease api.Lease) bool {
	if len(lease.Slices) != 1 || a.next.jobs == 0 || len(a.offers) != len(a.cards) {
		return false
	}
	s := lease.Slices[0]
	c := a.cards[s.GPU]
	if s.AdvertisedAs != "" || s.Profile != a.next.profile || c.Problem != "" {
		return false
	}
	p, ok := c.Model.Placement(s.Profile, s.Start)
	if in := c.ours[p]; !ok || in == nil || in.UUID != s.UUID || !in.idle() || !c.Model.Fits(a.offers[s.GPU], p) {
		return false
	}
	a.offers = slices.Clone(a.offers) // the draft that it came from is in use
	a.offers[s.GPU] = a.offers[s.GPU].With(p)
	a.next.jobs--
	return true
}
