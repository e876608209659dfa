package offer

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// speculation is what is offered to whoever comes next: what the queue leaves free and nothing is reserved on, but no
// profile that somebody waits for already, and each profile on one node only: which of several gets a job is
// slurmctld's choice, not the policy's.
type speculation struct {
	*Cluster
	waited queue
	nodeOf []int // by GPU
	// where the policy would place one of each profile; those whose GPU has had its turn are gone
	best map[string]Spot
	on   map[string]int // on how many GPUs each is on offer
	home map[string]int // on which node it is
}

// addSpeculative adds it to a plan. The GPUs on which the policy would place one of any profile have their turn first,
// then the full ones, so that small profiles are offered there, and large ones where there is room for them.
func (c *Cluster) addSpeculative(plan *Plan, waited queue) {
	if plan.Reserved != nil {
		defer c.withhold(plan.Reserved)()
	}
	s := speculation{
		Cluster: c,
		waited:  waited,
		nodeOf:  c.nodeOf(),
		best:    map[string]Spot{},
		on:      map[string]int{},
		home:    map[string]int{},
	}
	var order []int
	for _, gpus := range c.Nodes {
		for _, k := range gpus {
			if c.Pool.Busy(k) != nil {
				order = append(order, k)
			}
		}
	}
	preferred := s.choose()
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(preferred[b], preferred[a]), cmp.Compare(c.Pool.Busy(a).Units, c.Pool.Busy(b).Units))
	})
	for _, k := range order {
		l := s.fill(k, c.Pool.GPU(k))
		plan.Offers[k] |= l
		b := c.Pool.GPU(k).Model
		for p := range b.Profiles {
			if name := b.Profiles[p].Name; l&b.OfProfile(p) != 0 {
				s.on[name]++
				s.home[name] = s.nodeOf[k]
			}
		}
		for name, at := range s.best {
			if at.GPU == k {
				delete(s.best, name)
			}
		}
	}
}

// choose asks the policy where it would place one of each profile, and answers how many of these each GPU has.
func (s *speculation) choose() map[int]int {
	preferred := map[int]int{}
	var seen []*mig.Model
	for k := range s.Pool.Len() {
		b := s.Pool.GPU(k).Model
		if b == nil || slices.Contains(seen, b) {
			continue
		}
		seen = append(seen, b)
		for p := range b.Profiles {
			name := b.Profiles[p].Name
			if _, known := s.best[name]; known {
				continue
			}
			choice := s.Policy.Choose(
				&s.Situation,
				place.Request{Profile: name, Duration: cmp.Or(s.MeanDuration, math.Inf(1))},
			)
			at := Spot{GPU: choice.GPU, Placement: choice.Placement}
			if choice.Verdict == place.Here && s.offerable(at) && !s.waited.has(name, s.nodeOf[at.GPU]) {
				s.best[name] = at
				preferred[at.GPU]++
			}
		}
	}
	return preferred
}

// fill chooses what to offer on a GPU. Of the ways of filling it up, it takes the one whose kinds of profile are worth
// most; among equals the one whose kinds leave the most maximal layouts reachable once one of them has started; then
// the one that reuses most idle instances.
func (s *speculation) fill(k int, g place.GPU) (best mig.Layout) {
	b, taken := g.Model, g.Layout
	room := b.Open(taken, g.Blocked)
	if s.Offerable != nil {
		room &= s.Offerable[k]
	}
	for p := range b.Profiles {
		if name := b.Profiles[p].Name; s.waited.has(name, s.nodeOf[k]) || s.elsewhere(name, s.nodeOf[k]) {
			room &^= b.OfProfile(p)
		}
	}
	if room == 0 {
		return 0
	}
	type score struct {
		worth float64
		reach int
		idle  int
	}
	better := func(a, b score) int {
		return cmp.Or(cmp.Compare(a.worth, b.worth), cmp.Compare(a.reach, b.reach), cmp.Compare(a.idle, b.idle))
	}
	asked := s.WeightsOn(b)
	reach := map[int]int{}
	for i := range room.Indices() {
		reach[i] = b.ReachBeside(taken.With(i), g.Blocked)
	}
	var top score
	seen := map[mig.Layout]bool{}
	for _, m := range b.Maximal() {
		if m&taken != taken {
			continue
		}
		l := m & room
		if seen[l] {
			continue
		}
		seen[l] = true
		of := score{idle: (l & g.Idle).Count()}
		for p := range b.Profiles {
			here := l & b.OfProfile(p)
			if here == 0 {
				continue
			}
			of.worth += asked[p] * s.worth(b.Profiles[p].Name, k, here)
			most := 0
			for i := range here.Indices() {
				most = max(most, reach[i])
			}
			of.reach += most
		}
		if better(of, top) > 0 {
			best, top = l, of
		}
	}
	return best
}

// elsewhere reports whether a profile is on offer on another node, or the policy would rather have it there.
func (s *speculation) elsewhere(profile string, node int) bool {
	if at, ok := s.best[profile]; ok {
		return s.nodeOf[at.GPU] != node
	}
	home, ok := s.home[profile]
	return ok && home != node
}

// worth is what placements of a profile on a GPU are worth, of 1: less if the profile is on offer elsewhere already, or
// if the policy would rather have it there.
func (s *speculation) worth(profile string, gpu int, placements mig.Layout) float64 {
	elsewhere := s.on[profile]
	if at, ok := s.best[profile]; ok {
		if at.GPU == gpu && placements.Has(at.Placement) {
			return 1
		}
		elsewhere++
	}
	if elsewhere == 0 {
		return 1
	}
	return 0.1 / float64(elsewhere)
}
