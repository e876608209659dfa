package state

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// PendingLease holds the slices of a job that slurmctld has started on this node but that has no lease yet. If spots
// is nil, the pending lease is unplaced: the agent has not found free spots for the slices.
type PendingLease struct {
	Wants []offer.Want
	Spots []offer.Spot
	// Leasing is true while the agent is serving the job's prolog. During that time, the agent keeps the pending lease
	// even if slurmctld no longer lists the job.
	Leasing bool
}

// TakeOffers records a pending lease for a job at offered spots and withdraws these offers. If the offers do not
// include all of the requested slices, it only ends a Growth and returns false. The argument array is the id of the job
// array that the job belongs to, or 0. The caller holds the node's lock.
func (n *Node) TakeOffers(job, array uint32, wants []offer.Want) (*PendingLease, bool) {
	gpus := n.View()
	offers := slices.Clone(n.Offers)
	var spots []offer.Spot
	for _, w := range wants {
		together := n.chooseConnected(gpus, offers, cmp.Or(array, job), w)
		for k := range w.Count {
			var s offer.Spot
			ok := k < len(together)
			if ok {
				s = together[k]
			} else if s, ok = n.Choose(gpus, offers, cmp.Or(array, job), w); !ok && n.Growing != nil {
				n.Growing = nil
				n.Version++
				return n.TakeOffers(job, array, wants)
			} else if !ok {
				return nil, false
			}
			offers[s.GPU] = offers[s.GPU].Without(s.Placement)
			gpus[s.GPU].Hold(s.Placement, math.Inf(1))
			spots = append(spots, s)
		}
	}
	pr := &PendingLease{Wants: wants, Spots: spots}
	n.Pending[job] = pr
	n.Offers = offers
	n.Version++
	return pr, true
}

// Choose returns the offered spot for a slice of a job. slurmctld counts only profiles, so a job can start on an offer
// that was planned for another job. If the plan contains spots for the job, choose returns one of them. Otherwise, it
// prefers an offer that is not planned for any job. If the offered placement is larger than the job is entitled to,
// choose returns a placement of the requested profile within it and removes the offer. The caller holds the node's
// lock.
func (n *Node) Choose(gpus []place.GPU, offers []mig.Layout, job uint32, w offer.Want) (offer.Spot, bool) {
	isOffered := func(s offer.Spot) bool { return offers[s.GPU].Has(s.Placement) && possible(gpus[s.GPU], s.Placement) }
	for _, spots := range n.Planned[job] {
		if len(spots) == 1 && w.Count == 1 && isOffered(spots[0]) && n.nameOf(gpus, spots[0]) == w.Profile {
			return spots[0], true
		}
	}
	s, ok := pick(gpus, offer.Plan{Offers: n.unplanned(offers), AdvertisedAs: n.AdvertisedAs}, w.Profile)
	if !ok {
		s, ok = pick(gpus, offer.Plan{Offers: offers, AdvertisedAs: n.AdvertisedAs}, w.Profile)
	}
	if !ok || w.Allows(gpus[s.GPU].Model.ProfileOf(s.Placement)) {
		return s, ok
	}
	offers[s.GPU] = offers[s.GPU].Without(s.Placement)
	s.Placement, ok = inside(gpus[s.GPU], s.Placement, w)
	return s, ok
}

// chooseConnected is like choose, but returns all spots for a job that requests several full GPUs, preferring GPUs
// connected by NVLinks (offer.Connected). It returns nil if the job does not request several full GPUs or if too few
// are offered. The caller holds the node's lock.
func (n *Node) chooseConnected(
	gpus []place.GPU, offers []mig.Layout, job uint32, w offer.Want,
) (spots []offer.Spot) {
	if w.Profile != mig.Full || w.Count < 2 {
		return nil
	}
	fullOf := func(of []mig.Layout, g int) mig.Layout {
		if gpus[g].Model == nil {
			return 0
		}
		return of[g] & gpus[g].Model.Full()
	}
	for _, set := range n.Planned[job] {
		set = slices.DeleteFunc(slices.Clone(set), func(s offer.Spot) bool {
			return !fullOf(offers, s.GPU).Has(s.Placement)
		})
		if len(set) == w.Count {
			return set
		}
	}
	for _, of := range [][]mig.Layout{n.unplanned(offers), offers} {
		var free []int
		for g := range gpus {
			if fullOf(of, g) != 0 {
				free = append(free, g)
			}
		}
		for _, g := range offer.Connected(func(g int) place.GPU { return gpus[g] }, free, w.Count) {
			for i := range gpus[g].Model.Full().Indices() {
				spots = append(spots, offer.Spot{GPU: g, Placement: i})
			}
		}
		if spots != nil {
			return spots
		}
	}
	return nil
}

// unplanned returns the offers that are not planned for any job. The caller holds the node's lock.
func (n *Node) unplanned(offers []mig.Layout) []mig.Layout {
	offers = slices.Clone(offers)
	for _, sets := range n.Planned {
		for _, s := range slices.Concat(sets...) {
			offers[s.GPU] = offers[s.GPU].Without(s.Placement)
		}
	}
	return offers
}

// nameOf returns the profile name under which a spot is offered. The caller holds the node's lock.
func (n *Node) nameOf(gpus []place.GPU, s offer.Spot) string {
	return offer.Plan{AdvertisedAs: n.AdvertisedAs}.Name(gpus[s.GPU].Model, s)
}

// possible reports whether a GPU can have an instance at placement i. An offer or a pending lease may have been
// recorded before its GPU was lost, before the driver refused to switch off the GPU's MIG mode, or before a foreign or
// stuck instance took units of the placement.
func possible(g place.GPU, i int) bool {
	return g.Model != nil && i < len(g.Model.Placements) && g.Model.Units(i)&g.Blocked == 0 &&
		g.Model.Fits(g.Busy, i)
}

// inside returns the best placement of the requested profile, or of its equivalent profile, within placement i of a
// GPU: the one that leaves the largest number of reachable maximal layouts. If no placement fits, ok is false.
func inside(g place.GPU, i int, w offer.Want) (best int, ok bool) {
	top := math.MinInt
	for j := range g.Model.Placements {
		fits := g.Model.Units(j)&^g.Model.Units(i) == 0 && g.Model.Fits(g.Busy, j)
		if !fits || !w.Allows(g.Model.ProfileOf(j)) {
			continue
		}
		if score := g.Model.ReachBeside(g.Busy.With(j), g.Blocked); score > top {
			best, top, ok = j, score, true
		}
	}
	return best, ok
}

// pick returns the best offered placement of a profile. It prefers the placements of idle instances and avoids those
// for which a MIG mode must be switched. Among equally good placements, it chooses the one that leaves the largest
// number of reachable maximal layouts. If the profile is not offered, ok is false.
func pick(gpus []place.GPU, p offer.Plan, profile string) (best offer.Spot, ok bool) {
	top := -1
	for gi, g := range gpus {
		for i := range p.Offers[gi].Indices() {
			if !possible(g, i) || p.Name(g.Model, offer.Spot{GPU: gi, Placement: i}) != profile {
				continue
			}
			score := g.Model.ReachBeside(g.Busy.With(i), g.Blocked)
			switch m, _ := g.AcquisitionOf(i); m {
			case place.Reuse:
				score += 1 << 20
			case place.Switch:
				score -= 1 << 20
			}
			if score > top {
				best, top, ok = offer.Spot{GPU: gi, Placement: i}, score, true
			}
		}
	}
	return best, ok
}

// PlacePending finds spots for the unplaced pending leases. If not all of them fit, it places as many as possible, in
// the order of the job ids. It changes gpus, but not the node's state. The caller holds the node's lock.
func (n *Node) PlacePending(gpus []place.GPU) map[uint32][]offer.Spot {
	var unplaced []*offer.Job
	for job, pr := range n.Pending {
		if pr.Spots == nil {
			j := &offer.Job{ID: job, Wants: pr.Wants, RunTime: math.Inf(1), TimeLimit: math.Inf(1)}
			unplaced = append(unplaced, j)
		}
	}
	slices.SortFunc(unplaced, func(x, y *offer.Job) int { return int(x.ID) - int(y.ID) })
	found, all := offer.Pack(gpus, unplaced)
	if !all {
		found = map[uint32][]offer.Spot{}
		for _, j := range unplaced {
			if spots, _ := offer.NewCluster(n.Settings.Policy, gpus).Find(j, nil); spots != nil {
				found[j.ID] = spots
				n.hold(gpus, j.ID, spots)
			}
		}
		return found
	}
	for job, spots := range found {
		n.hold(gpus, job, spots)
	}
	return found
}

// DropPending removes a job's pending lease after the agent has served the job's prolog.
func (n *Node) DropPending(id uint32) {
	n.Lock()
	defer n.Unlock()
	if n.Pending[id] != nil {
		delete(n.Pending, id)
		n.Version++
	}
}

// Forget removes the spots from a pending lease, so that the next pass searches for other spots.
func (n *Node) Forget(id uint32) {
	n.Lock()
	defer n.Unlock()
	if pr := n.Pending[id]; pr != nil {
		pr.Spots = nil
		n.Growing = nil // the job may need the units
		n.Version++
	}
}
