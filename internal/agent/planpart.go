package agent

import (
	"caelum/internal/api"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"slices"
)

// planPart is the node's part of a plan.
type planPart struct {
	offers []mig.Layout          // by card
	as     map[offer.Spot]string // the offers that are published under a profile name of another GPU model
	// planned maps each waiting job to the spots that this node offers for it. The key of an array task is the id of
	// the array.
	planned  map[uint32][][]offer.Spot
	reserved *api.Reservation // the slices on this node that are reserved for a waiting job
	next     next             // the next waiting jobs
}

// If the first waiting job requests a slice of the same profile, the agent can offer a released slice again without a
// new plan. slurmctld counts it as free when the epilog ends, so the agent offers it while it serves the epilog,
// without waiting for slurmctld. A pass follows, as after any other change.

// next describes the first jobs in the queue that have no spots in the current plan, all of which request one slice
// of the same profile.
type next struct {
	profile string
	jobs    int // the number of consecutive jobs in the queue that request the profile
}

// offerAgain offers the slice of a dropped lease if the next waiting job requests one of the same profile, and reports
// whether it did so. The caller holds the node's lock.
func (n *node) offerAgain(lease api.Lease) bool {
	if len(lease.Slices) != 1 || n.next.jobs == 0 || len(n.offers) != len(n.cards) {
		return false
	}
	s := lease.Slices[0]
	c := n.cards[s.GPU]
	if s.AdvertisedAs != "" || s.Profile != n.next.profile || c.Problem != "" {
		return false
	}
	p, ok := c.Model.Placement(s.Profile, s.Start)
	if in := c.ours[p]; !ok || in == nil || in.UUID != s.UUID || !in.idle() || !c.Model.Fits(n.offers[s.GPU], p) {
		return false
	}
	n.offers = slices.Clone(n.offers) // a copy, because the current plan still uses the original
	n.offers[s.GPU] = n.offers[s.GPU].With(p)
	n.next.jobs--
	return true
}
