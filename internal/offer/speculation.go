package offer

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// speculation chooses the offers for jobs that will be submitted later. It uses the units that the queue does not need
// and that are not reserved, and it does not offer profiles for which a job already waits. It offers each profile on
// only one node. If several nodes offered the profile, slurmctld, and not the policy, would choose the node.
type speculation struct {
	*Cluster
	waited demand
	nodeOf []int // the node of each GPU
	// best maps each profile to the spot at which the policy would place one slice. It has no entries for GPUs that
	// have been filled.
	best map[string]Spot
	on   map[string]int // the number of GPUs on which each profile is offered
	home map[string]int // the node on which each profile is offered
}

// addSpeculative adds the speculative offers to the plan. It first fills the GPUs on which the policy would place
// slices, and then the other GPUs, starting with the fullest. As a result, small profiles are offered on full GPUs, and
// large profiles are offered on the GPUs where they fit.
func (p *planner) addSpeculative() {
	if p.plan.Reserved != nil {
		defer p.withhold(p.plan.Reserved)()
	}
	s := speculation{
		Cluster: p.Cluster,
		waited:  p.waited(),
		nodeOf:  p.nodeOf(),
		best:    map[string]Spot{},
		on:      map[string]int{},
		home:    map[string]int{},
	}
	var order []int
	for _, gpus := range p.Nodes {
		for _, k := range gpus {
			if p.Pool.Node(k) != nil {
				order = append(order, k)
			}
		}
	}
	preferred := s.choose()
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(preferred[b], preferred[a]), cmp.Compare(p.Pool.Node(a).Units, p.Pool.Node(b).Units))
	})
	for _, k := range order {
		l := s.fill(k, p.Pool.GPU(k))
		p.plan.Offers[k] |= l
		b := p.Pool.GPU(k).Model
		for i := range b.Profiles {
			if name := b.Profiles[i].Name; l&b.OfProfile(i) != 0 {
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

// waited returns the profiles for which jobs of the queue wait. These include the profiles of jobs that have been
// placed, because the slices of these jobs are already offered.
func (p *planner) waited() demand {
	all := demand{}
	for k, j := range p.jobs {
		if p.plan.Spots[k] != nil || !p.singletons[j.SingletonKey] {
			all.add(j)
		}
	}
	return all
}

// choose asks the policy where it would place one slice of each profile, and sets best. It returns the number of these
// placements on each GPU.
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
			if choice.Verdict == place.Here && s.offerable(at) && s.may(name, s.nodeOf[at.GPU]) {
				s.best[name] = at
				preferred[at.GPU]++
			}
		}
	}
	return preferred
}

// may reports whether a profile may be offered speculatively on a node.
func (s *speculation) may(profile string, node int) bool {
	return (s.Speculative == nil || s.Speculative[profile]) && !s.waited.has(profile, node)
}

// fill returns the placements to offer on a GPU. Among all ways to fill the GPU, fill chooses the one with the highest
// total value of the profiles. It breaks ties by the number of maximal layouts that are still reachable after one of
// the placements has started, and then by the number of reused idle instances.
func (s *speculation) fill(k int, g place.GPU) (best mig.Layout) {
	b, taken := g.Model, g.Busy
	room := b.Open(taken, g.Blocked) & g.Offerable
	for p := range b.Profiles {
		if name := b.Profiles[p].Name; !s.may(name, s.nodeOf[k]) || s.elsewhere(name, s.nodeOf[k]) {
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

// elsewhere reports whether a profile is offered on another node, or the policy would place it on another node.
func (s *speculation) elsewhere(profile string, node int) bool {
	if at, ok := s.best[profile]; ok {
		return s.nodeOf[at.GPU] != node
	}
	home, ok := s.home[profile]
	return ok && home != node
}

// worth returns the value of offering placements of a profile on a GPU, which is at most 1. The value is lower if the
// profile is already offered on another GPU, or if the policy would place it on another GPU.
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
