package offer

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// speculation chooses the offers for jobs that will be submitted later, from the units that are neither reserved nor
// needed by the queue. It does not offer profiles for which a job is already waiting, and offers each profile on only
// one node, because slurmctld, not the policy, would choose among several nodes.
type speculation struct {
	*Cluster
	waited demand
	nodeOf []int // the node of each GPU
	// best maps each profile to the spot at which the policy would place one slice, except for spots on GPUs that
	// have been filled.
	best map[string]Spot
	on   map[string]int // the number of GPUs on which each profile is offered
	home map[string]int // the node on which each profile is offered
	full int            // the maximum number of GPUs to offer as full GPUs although they could hold slices
}

// addSpeculative adds the speculative offers to the plan. It first fills the GPUs on which the policy would place
// slices, and it fills fuller GPUs before emptier ones. Small profiles are therefore offered on nearly full GPUs, and
// large profiles on emptier GPUs.
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
		full:    p.Pool.Len(),
	}
	if !p.quota.off && p.slicesWait(1) {
		s.full = p.quota.left
	}
	type ranked struct{ gpu, preferred, units int }
	var order []ranked
	preferred := s.choose()
	for _, gpus := range p.Nodes {
		for _, k := range gpus {
			if info := p.Pool.Info(k); info != nil && info.Open&p.Pool.GPU(k).Offerable != 0 {
				order = append(order, ranked{k, preferred[k], info.Units})
			}
		}
	}
	slices.SortStableFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.preferred, a.preferred), cmp.Compare(a.units, b.units))
	})
	for _, o := range order {
		k := o.gpu
		l := s.fill(k, p.Pool.GPU(k))
		p.plan.Offers[k] |= l
		if b := p.Pool.GPU(k).Model; l&b.Full() != 0 && p.switchable(k) {
			s.full--
		}
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

// waited returns the profiles for which jobs in the queue are waiting. They include the profiles of placed jobs,
// because the plan already offers slices for these jobs.
func (p *planner) waited() demand {
	all := newDemand()
	for k, j := range p.jobs {
		if p.plan.Spots[k] != nil || !p.singletons[j.SingletonKey] {
			all.add(j)
		}
	}
	return all
}

// choose sets best to the policy's placement of one slice of each profile and returns the number of these placements on
// each GPU.
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
			if _, known := s.best[name]; known || s.Speculative != nil && !s.Speculative[name] {
				continue
			}
			choice := s.Policy.Choose(
				&s.Situation,
				place.Request{Profile: name, Duration: cmp.Or(s.MeanDuration, math.Inf(1))},
			)
			if choice.Verdict != place.Here {
				continue
			}
			at := s.spare(Spot{GPU: choice.GPU, Placement: choice.Placement})
			if s.offerable(at) && s.may(name, at.GPU) {
				s.best[name] = at
				preferred[at.GPU]++
			}
		}
	}
	return preferred
}

// may reports whether a profile can be offered speculatively on a GPU. A speculative offer on a powered-down node could
// cause slurmctld to resume the node for a job that another node could have run a moment later.
func (s *speculation) may(profile string, gpu int) bool {
	node := s.nodeOf[gpu]
	return node < s.awake() && (s.Speculative == nil || s.Speculative[profile]) && !s.waited.has(profile, node) &&
		(profile != mig.Full || s.full > 0 || !s.switchable(gpu))
}

// fill returns the placements to offer on a GPU. Among all ways to fill the GPU, it chooses the one whose profiles
// have the highest total value. Ties are broken first by the number of maximal layouts that are still reachable after
// a job has started on one of the placements, and then by the number of reused idle instances.
func (s *speculation) fill(k int, g place.GPU) (best mig.Layout) {
	b, taken := g.Model, g.Busy
	room := b.Open(taken, g.Blocked) & g.Offerable
	for p := range b.Profiles {
		if name := b.Profiles[p].Name; !s.may(name, k) || s.elsewhere(name, s.nodeOf[k]) {
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

// elsewhere reports whether another node offers the profile, or whether the policy would place it on another node.
func (s *speculation) elsewhere(profile string, node int) bool {
	if at, ok := s.best[profile]; ok {
		return s.nodeOf[at.GPU] != node
	}
	home, ok := s.home[profile]
	return ok && home != node
}

// worth returns the value, at most 1, of offering placements of a profile on a GPU. It is lower if the profile is
// already offered on another GPU, or if the policy would place it on another GPU.
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
