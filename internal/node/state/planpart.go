package state

import (
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/node/api"
)

// PlanPart is the node's part of a plan.
type PlanPart struct {
	Offers       []mig.Layout          // by card
	AdvertisedAs map[offer.Spot]string // the offers that are published under a profile name of another GPU model
	// Planned maps each waiting job to the spots that this node offers for it. The key of an array task is the id of
	// the array.
	Planned  map[uint32][][]offer.Spot
	Reserved *api.Reservation // the slices on this node that are reserved for a waiting job
	Next     Next             // the next waiting jobs
}

// If the first waiting job requests a slice of the same profile, the agent can offer a released slice again without a
// new plan. slurmctld counts it as free when the epilog ends, so the agent offers it while it serves the epilog,
// without waiting for slurmctld. A pass follows, as after any other change.

// Next describes the first jobs in the queue that have no spots in the current plan, all of which request one slice
// of the same profile.
type Next struct {
	Profile string
	Jobs    int // the number of consecutive jobs in the queue that request the profile
}

// OfferAgain offers the slice of a dropped lease if the next waiting job requests one of the same profile, and reports
// whether it did so. The caller holds the node's lock.
func (n *Node) OfferAgain(lease api.Lease) bool {
	if len(lease.Slices) != 1 || n.Next.Jobs == 0 || len(n.Offers) != len(n.Cards) {
		return false
	}
	s := lease.Slices[0]
	c := n.Cards[s.GPU]
	if s.AdvertisedAs != "" || s.Profile != n.Next.Profile || c.Problem != "" {
		return false
	}
	p, ok := c.Model.Placement(s.Profile, s.Start)
	if in := c.Ours[p]; !ok || in == nil || in.UUID != s.UUID || !in.Idle() || !c.Model.Fits(n.Offers[s.GPU], p) {
		return false
	}
	n.Offers = slices.Clone(n.Offers) // a copy, because the current plan still uses the original
	n.Offers[s.GPU] = n.Offers[s.GPU].With(p)
	n.Next.Jobs--
	return true
}
