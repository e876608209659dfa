// Package offer decides what a node publishes: for each GPU a set of free placements that, together with what is busy
// there, is a legal layout, so that whatever slurmctld starts, in any order, can be carved.
//
// It is pure: values in, a plan out; no clock, no I/O.
package offer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// GPU is what a plan must know of one GPU.
type GPU struct {
	Board *mig.Board
	// Busy are the placements that are taken: leased, promised to a job that slurmctld has started, or somebody else's.
	Busy mig.Layout
	// Blocked are units taken by something that is no placement of this board, or by a stuck instance.
	Blocked uint64
	// Idle are existing instances that nobody holds: handing one out costs nothing, and one in the way can be destroyed.
	Idle mig.Layout
	// Offerable are the placements that may be put on offer (the site's profiles).
	Offerable mig.Layout
}

// Hold counts a placement as busy; idle instances in its way will have to go.
func (g *GPU) Hold(placement int) {
	g.Busy = g.Busy.With(placement)
	g.Idle = beside(g.Board, g.Idle, g.Busy)
}

// Want is a number of slices of one profile.
type Want struct {
	Profile string
	Count   int
}

// Demand is what one job needs on this node.
type Demand struct {
	Job   uint32
	Wants []Want
}

// Spot is a placement on one of the node's GPUs, an index into the plan's GPUs.
type Spot = place.Spot

// Plan is what may be given out.
type Plan struct {
	// Offers has one set of placements per GPU.
	Offers []mig.Layout
	// Served are the waiting jobs that find everything they need among the offers, in the order they were given.
	Served []uint32
}

// Make plans the offers: first the waiting jobs in their order (a job that does not fit now is passed over), then
// what keeps the most kinds of request startable. Everything is placed by the policy.
func Make(gpus []GPU, waiting []Demand, policy place.Policy) Plan {
	plan := Plan{Offers: make([]mig.Layout, len(gpus))}
	pool := poolOf(gpus, plan.Offers)
	for _, d := range waiting {
		if spots, ok := fit(gpus, pool, d.Wants, policy); ok {
			for _, s := range spots {
				plan.Offers[s.GPU] = plan.Offers[s.GPU].With(s.Placement)
			}
			plan.Served = append(plan.Served, d.Job)
		}
	}
	on := map[string]int{} // profile -> on how many GPUs it is on offer beyond what the queue takes
	for i, g := range gpus {
		if g.Board == nil {
			continue
		}
		spare := fill(g, plan.Offers[i], on)
		for p := range kinds(g.Board, spare) {
			on[p]++
		}
		plan.Offers[i] |= spare
	}
	return plan
}

// Fit places all of a job's slices beside what is busy and on offer (one set per GPU), or none.
func Fit(gpus []GPU, offers []mig.Layout, wants []Want, policy place.Policy) ([]Spot, bool) {
	return fit(gpus, poolOf(gpus, offers), wants, policy)
}

// poolOf is the GPUs with their offers taken.
func poolOf(gpus []GPU, offers []mig.Layout) *place.Pool {
	state := make([]place.GPU, len(gpus))
	for i, g := range gpus {
		if g.Board != nil {
			taken := g.Busy | offers[i]
			state[i] = place.GPU{Board: g.Board, Layout: taken, Blocked: g.Blocked, Idle: beside(g.Board, g.Idle, taken)}
		}
	}
	return place.NewPool(state)
}

// fit places the slices in the pool; where one finds no room the pool is as it was.
func fit(gpus []GPU, pool *place.Pool, wants []Want, policy place.Policy) (spots []Spot, ok bool) {
	now := &place.Situation{Pool: pool}
	var before []place.GPU
	for _, w := range bySize(gpus, wants) {
		for range w.Count {
			c := policy.Choose(now, place.Request{Profile: w.Profile, Duration: math.Inf(1)})
			if c.Verdict != place.Here || !gpus[c.GPU].Offerable.Has(c.Placement) {
				for k := len(spots) - 1; k >= 0; k-- {
					pool.Set(spots[k].GPU, before[k])
				}
				return nil, false
			}
			before = append(before, pool.GPU(c.GPU))
			pool.Start(c.GPU, c.Placement, math.Inf(1))
			spots = append(spots, Spot{GPU: c.GPU, Placement: c.Placement})
		}
	}
	return spots, len(spots) > 0
}

// beside is the idle instances that can stay when a layout is carved.
func beside(b *mig.Board, idle, layout mig.Layout) mig.Layout {
	return idle &^ b.Overlapping(b.Occupied(layout))
}

// bySize puts the largest profiles first: what is hardest to place goes where there is most room.
func bySize(gpus []GPU, wants []Want) []Want {
	size := func(profile string) int {
		most := 0
		for _, g := range gpus {
			if g.Board != nil {
				if i, ok := g.Board.ProfileIndex(profile); ok {
					most = max(most, g.Board.Profiles[i].Size)
				}
			}
		}
		return most
	}
	sorted := slices.Clone(wants)
	slices.SortStableFunc(sorted, func(a, b Want) int { return cmp.Compare(size(b.Profile), size(a.Profile)) })
	return sorted
}

// fill chooses what to offer of the room that the queue leaves on a GPU. Of the ways of filling it up, it takes the
// one with the most kinds of profile, a kind that is already on offer elsewhere counting less; among equals the one whose
// kinds leave the most maximal layouts reachable once one of them has started; then the one that reuses most idle instances.
func fill(g GPU, offered mig.Layout, on map[string]int) mig.Layout {
	taken := g.Busy | offered
	room := g.Offerable & g.Board.Open(taken, g.Blocked)
	type score struct {
		kinds float64
		reach int
		idle  int
	}
	better := func(a, b score) int {
		return cmp.Or(cmp.Compare(a.kinds, b.kinds), cmp.Compare(a.reach, b.reach), cmp.Compare(a.idle, b.idle))
	}
	reach := map[int]int{}
	for i := range room.Indices() {
		reach[i] = g.Board.ReachBeside(taken.With(i), g.Blocked)
	}
	var best mig.Layout
	var top score
	seen := map[mig.Layout]bool{}
	for _, m := range g.Board.Maximal() {
		if m&taken != taken {
			continue
		}
		c := m & room
		if seen[c] {
			continue
		}
		seen[c] = true
		s := score{idle: (c & g.Idle).Count()}
		for p, of := range kinds(g.Board, c) {
			s.kinds += 1 / float64(1+on[p])
			most := 0
			for i := range of.Indices() {
				most = max(most, reach[i])
			}
			s.reach += most
		}
		if better(s, top) > 0 {
			best, top = c, s
		}
	}
	return best
}

// kinds splits a set of placements by profile name.
func kinds(b *mig.Board, l mig.Layout) map[string]mig.Layout {
	by := map[string]mig.Layout{}
	for i := range l.Indices() {
		name := b.Profiles[b.Placements[i].Profile].Name
		by[name] = by[name].With(i)
	}
	return by
}

// Counts is the number of placements on offer by profile.
func (p Plan) Counts(gpus []GPU) map[string]int {
	n := map[string]int{}
	for i, l := range p.Offers {
		if gpus[i].Board == nil {
			continue
		}
		for name, of := range kinds(gpus[i].Board, l) {
			n[name] += of.Count()
		}
	}
	return n
}

// Check says what makes a plan unsound, or nil: every offer must fit beside everything that is busy and every other offer.
func (p Plan) Check(gpus []GPU) error {
	if len(p.Offers) != len(gpus) {
		return fmt.Errorf("offers for %d GPUs of %d", len(p.Offers), len(gpus))
	}
	for i, g := range gpus {
		switch offers := p.Offers[i]; {
		case offers == 0:
		case g.Board == nil:
			return fmt.Errorf("GPU %d: offers on a GPU that is not managed", i)
		case offers&g.Busy != 0:
			return fmt.Errorf("GPU %d: %s is busy and on offer", i, g.Board.Draw(offers&g.Busy))
		case offers&^g.Offerable != 0:
			return fmt.Errorf("GPU %d: %s is not the site's to offer", i, g.Board.Draw(offers&^g.Offerable))
		case !g.Board.Legal(g.Busy | offers):
			return fmt.Errorf("GPU %d: busy %s and offers %s are no legal layout", i, g.Board.List(g.Busy), g.Board.List(offers))
		case g.Board.Occupied(offers)&g.Blocked != 0:
			return fmt.Errorf("GPU %d: offers %s on blocked units", i, g.Board.List(offers))
		}
	}
	return nil
}

// Pack finds placements for all demands at once beside what is busy, or none: the question after a restart, when jobs
// hold what an earlier plan offered and that plan is gone. When it finds none there are none ([place.Pack]).
func Pack(gpus []GPU, demands []Demand) (map[uint32][]Spot, bool) {
	state := make([]place.GPU, len(gpus))
	for i, g := range gpus {
		state[i] = place.GPU{Board: g.Board, Layout: g.Busy, Blocked: g.Blocked, Idle: g.Idle}
	}
	var jobs []uint32
	var profiles []string
	for _, d := range demands {
		for _, w := range bySize(gpus, d.Wants) {
			for range w.Count {
				jobs, profiles = append(jobs, d.Job), append(profiles, w.Profile)
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
