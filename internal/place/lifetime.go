package place

import "caelum/internal/mig"

// unknownDuration stands in for a job of which nobody knows how long it runs, in seconds: longer than any limit that
// sites set.
const unknownDuration = 1e7

func (r Request) duration() float64 { return min(r.Duration, unknownDuration) }

// longest limits how much of a duration counts, in recent means. Under qla 1, 2 and 4 differ little. Without a limit
// lifetime's mean waits are 6% longer where three of ten jobs have no time limit (load 0.7 and 0.85, seeds 1 to 3).
const longest = 2.0

// counted returns how much of the request's duration counts, in seconds: longest recent means at most. Jobs come and go
// meanwhile, so a slot that stays busy for longer costs no more.
func (s *Situation) counted(r Request) float64 {
	if s.MeanDuration > 0 {
		return min(r.duration(), longest*s.MeanDuration)
	}
	return r.duration()
}

// Lifetime puts instances together that end together. Slurm says when a job must end; so for each slot j (a profile at
// a start) of a GPU it is known when everything that overlaps it will have ended, F_j. A job that is expected to end at
// e and takes a placement keeps every slot j that overlaps it from being used for e - max(now, F_j) longer than it
// would be anyway. The policy takes the placement for which the sum of that over those slots, each counted with its
// size in units, is least:
//
//	until 12:00 |1g====|......|2g===========|   a 1g until 11:00 beside it costs the 2g slot nothing ...
//	until 10:00 |1g====|......|2g===========|   ... and here it costs that slot an hour
//
// Ties go to the larger reach, then to the lowest GPU and start. It needs no migration and no queue, and never holds a
// job. Of the past it needs the mean duration: see counted.
type Lifetime struct{}

// Choose implements [Policy].
func (Lifetime) Choose(s *Situation, r Request) Choice {
	d := s.counted(r)
	best := none
	// Slots that nothing overlaps cost the same on every GPU of a group: a bound for all of it, and the cost itself
	// where there are no others. The groups with a larger bound than the best cost need no look at their GPUs.
	first := candidate{cost: cost{first: none.first}, gpu: -1}
	var firstGroup *Group
	var firstMeans Acquisition
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		bound := sizes(g.Model, g.Model.Conflicts(i)&g.clear) * d
		if g.Model.Conflicts(i)&^g.clear == 0 {
			if c := (candidate{cost{bound, acquisitionCost(g, i, m)}, g.GPUs[0], i}); c.before(best) {
				best = c
			}
		} else if bound < first.first {
			first, firstGroup, firstMeans = candidate{cost{first: bound}, g.GPUs[0], i}, g, m
		}
	})
	consider := func(g *Group, i int, m Acquisition, bound float64) {
		second := acquisitionCost(g, i, m)
		for _, k := range g.GPUs {
			c := candidate{cost{bound, second}, k, i}
			free := s.Pool.gpus[k].free
			for j := range (g.Model.Conflicts(i) &^ g.clear).Indices() {
				c.first += float64(g.Model.Placements[j].Size) * max(0, s.Now+d-max(s.Now, free[j]))
			}
			if c.before(best) {
				best = c
			}
		}
	}
	if firstGroup != nil && first.first <= best.first {
		consider(firstGroup, first.placement, firstMeans, first.first)
		s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
			if g.Model.Conflicts(i)&^g.clear == 0 {
				return
			}
			if bound := sizes(g.Model, g.Model.Conflicts(i)&g.clear) * d; bound <= best.first {
				consider(g, i, m, bound)
			}
		})
	}
	return best.choice()
}

// sizes is the sum of the placements' sizes in units.
func sizes(b *mig.Model, l mig.Layout) float64 {
	n := 0
	for j := range l.Indices() {
		n += b.Placements[j].Size
	}
	return float64(n)
}
