package place

import "caelum/internal/core/mig"

// unknownDuration is the assumed duration, in seconds, of a job whose run time is unknown. It is longer than the time
// limits at any site.
const unknownDuration = 1e7

func (r Request) duration() float64 { return min(r.Duration, unknownDuration) }

// maxMeanDurations limits the duration of a job, as a multiple of the mean duration of recent jobs. If three out of ten
// jobs have no time limit, the mean waits with lifetime are 6% longer without this limit (load 0.7 and 0.85, seeds 1 to
// 3).
const maxMeanDurations = 2.0

// counted returns the duration of a request in seconds, limited to maxMeanDurations times the recent mean duration.
// Within this time, many other jobs start and end, so blocking a slot for even longer has no additional cost.
func (s *Situation) counted(r Request) float64 {
	if s.MeanDuration > 0 {
		return min(r.duration(), maxMeanDurations*s.MeanDuration)
	}
	return r.duration()
}

// Lifetime places instances next to each other if they become free at similar times. A slot j is a profile at a start.
// Because Slurm limits run times, the time F_j at which the jobs on all instances that overlap slot j will have ended
// is known. A job that is assigned a placement and is expected to end at time e blocks each slot j that overlaps the
// placement for e - max(now, F_j) longer than the running jobs do. The policy chooses the placement with the smallest
// sum of these blocked times, weighted by the size of each slot in units:
//
//	until 12:00 |1g====|......|2g===========|   a 1g until 11:00 next to it costs the 2g slot nothing ...
//	until 10:00 |1g====|......|2g===========|   ... and here it costs that slot an hour
//
// If jobs can use full GPUs, the sum also includes the node's slot (nodeSlots). Instances that end at similar times are
// then placed on the same node, so that nodes become free for jobs that need several full GPUs. Without the nodes'
// slots, these jobs wait 1.3 to 1.6 times as long (contrib/lab/whole, EASY, load 0.85, seeds 1 to 3).
//
// If several placements have the same sum, the policy compares the acquisition cost first, then the reach, and then the
// GPU and the start. Lifetime needs neither migration nor a queue. The only information about
// earlier jobs that it uses is their mean duration (see counted).
type Lifetime struct{}

// bounded is a candidate on any GPU of a group, with lower bounds on its cost.
type bounded struct {
	placement int
	acquired  Acquisition
	clear     float64    // the sum of the sizes of the slots that no busy instance overlaps
	rest      mig.Layout // the other slots that overlap the placement
	second    float64
}

// candidates returns the group's candidates for profile p.
func (g *Group) candidates(p int) []bounded {
	if g.lifetime[p] == nil {
		for m := range endOfAcquisitions {
			for i := range g.AcquiredBy(m, p).Indices() {
				slots := g.Model.Conflicts(i)
				g.lifetime[p] = append(g.lifetime[p],
					bounded{i, m, sizes(g.Model, slots&g.clear), slots &^ g.clear, acquisitionCost(g, i, m)})
			}
		}
	}
	return g.lifetime[p]
}

// Choose implements [Policy].
func (Lifetime) Choose(s *Situation, r Request) Choice {
	search := lifetimeSearch{Situation: s, d: s.counted(r), best: none}
	if !search.run(r.Profile, Reuse, Switch) {
		search.run(r.Profile, Switch, endOfAcquisitions)
	}
	return search.best.choice()
}

// lifetimeSearch is a search for the best candidate for a job whose counted duration is d.
//
// Slots that no busy instance overlaps cost the same on every GPU of a group, so the sum of their costs is a lower
// bound for all GPUs of the group. If the placement overlaps no other slots, the bound is the exact cost, unless the
// nodes have slots. If no GPU of a group can be better than the best candidate so far, the search skips the entire
// group.
type lifetimeSearch struct {
	*Situation
	d     float64
	best  candidate
	nodes nodeSlots
}

// run considers the candidates whose acquisition is in the range [from, to) and reports whether there are any. It
// begins with the candidate with the lowest bound, so that it can skip most of the others.
func (s *lifetimeSearch) run(profile string, from, to Acquisition) (found bool) {
	s.nodes = s.Pool.nodeSlots()
	var first *bounded
	var firstGroup *Group
	s.Pool.openOn(profile, func(p int, g *Group) {
		all := g.candidates(p)
		for k := range all {
			c := &all[k]
			if c.acquired < from || c.acquired >= to {
				continue
			}
			found = true
			if firstGroup == nil || c.clear < first.clear || c.clear == first.clear && c.second < first.second {
				first, firstGroup = c, g
			}
		}
	})
	if !found {
		return false
	}
	s.consider(firstGroup, first)
	s.Pool.openOn(profile, func(p int, g *Group) {
		all := g.candidates(p)
		for k := range all {
			c := &all[k]
			if c.clear*s.d <= s.best.first && c.acquired >= from && c.acquired < to && c != first {
				s.consider(g, c)
			}
		}
	})
	return true
}

// consider compares the placement on each GPU of the group with the best candidate.
func (s *lifetimeSearch) consider(g *Group, b *bounded) {
	bound := cost{b.clear * s.d, b.second}
	end := s.Now + s.d
	for _, k := range g.GPUs {
		c := candidate{bound, k, b.placement}
		if !c.before(s.best) {
			return // the costs of the GPUs are at least the bound, and the GPUs are in ascending order
		}
		c.first += s.nodes.cost(s.Pool, k, s.Now, s.d)
		free := s.Pool.gpus[k].free
		for j := range b.rest.Indices() {
			c.first += float64(g.Model.Placements[j].Size) * max(0, end-max(s.Now, free[j]))
		}
		if c.before(s.best) {
			s.best = c
		}
		if s.nodes == nil && b.rest == 0 {
			return // all of the group's GPUs have equal costs
		}
	}
}

// sizes returns the sum of the sizes of the placements, in units.
func sizes(b *mig.Model, l mig.Layout) float64 {
	n := 0
	for j := range l.Indices() {
		n += b.Placements[j].Size
	}
	return float64(n)
}
