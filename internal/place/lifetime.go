package place

import "caelum/internal/mig"

// unknownDuration is the assumed duration, in seconds, of a job whose run time is unknown. unknownDuration exceeds the
// time limits of all sites.
const unknownDuration = 1e7

func (r Request) duration() float64 { return min(r.Duration, unknownDuration) }

// maxMeanDurations limits the duration of a job, as a multiple of the mean duration of recent jobs. With qla, the
// multiples 1, 2 and 4 lead to similar waits. If three of ten jobs have no time limit, the mean waits with lifetime are
// 6% longer without maxMeanDurations (load 0.7 and 0.85, seeds 1 to 3).
const maxMeanDurations = 2.0

// counted returns the duration of a request in seconds, limited to maxMeanDurations times the recent mean duration.
// Within this time, many other jobs start and end, so blocking a slot for even longer causes no further cost.
func (s *Situation) counted(r Request) float64 {
	if s.MeanDuration > 0 {
		return min(r.duration(), maxMeanDurations*s.MeanDuration)
	}
	return r.duration()
}

// Lifetime places instances that end at similar times next to each other. A slot j is a profile at a start. Slurm
// limits run times, so the time F_j at which all instances that overlap slot j will have ended is known. A job that
// gets a placement and is expected to end at the time e blocks each slot j that overlaps the placement. The job blocks
// the slot for e - max(now, F_j) longer than the running jobs do. The policy chooses the placement with the smallest
// sum of these blocked times, weighted with the size of each slot in units:
//
//	until 12:00 |1g====|......|2g===========|   a 1g until 11:00 beside it costs the 2g slot nothing ...
//	until 10:00 |1g====|......|2g===========|   ... and here it costs that slot an hour
//
// If GPUs may be full, the sum also contains the slot of the node (nodeSlots). Instances that end at similar times are
// then on the same node, and nodes become free for jobs with several full GPUs. Without the slots of the nodes, these
// jobs wait 1.3 to 1.6 times as long (contrib/whole, EASY, load 0.85, seeds 1 to 3).
//
// If several placements have the same sum, the policy compares first the acquisition cost, then the reach, then the GPU
// and the start. Lifetime needs neither migration nor a queue, and never holds a job. From earlier jobs, Lifetime uses
// only the mean duration (see counted).
type Lifetime struct{}

// Choose implements [Policy].
func (Lifetime) Choose(s *Situation, r Request) Choice {
	d := s.counted(r)
	best := none
	nodes := s.Pool.nodeSlots()
	// Slots that no busy instance overlaps cost the same on every GPU of a group. The sum of the costs of these slots
	// is a lower bound for all GPUs of the group. If the placement overlaps no other slots, the bound is the exact
	// cost, unless the nodes have slots. If the bound exceeds the best cost found so far, Choose skips the GPUs of the
	// group.
	first := candidate{cost: cost{first: none.first}, gpu: -1}
	var firstGroup *Group
	var firstAcquisition Acquisition
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		bound := sizes(g.Model, g.Model.Conflicts(i)&g.clear) * d
		if nodes == nil && g.Model.Conflicts(i)&^g.clear == 0 {
			if c := (candidate{cost{bound, acquisitionCost(g, i, m)}, g.GPUs[0], i}); c.before(best) {
				best = c
			}
		} else if bound < first.first {
			first, firstGroup, firstAcquisition = candidate{cost{first: bound}, g.GPUs[0], i}, g, m
		}
	})
	consider := func(g *Group, i int, m Acquisition, bound float64) {
		second := acquisitionCost(g, i, m)
		for _, k := range g.GPUs {
			c := candidate{cost{bound + nodes.cost(s.Pool, k, s.Now, d), second}, k, i}
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
		consider(firstGroup, first.placement, firstAcquisition, first.first)
		s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
			if nodes == nil && g.Model.Conflicts(i)&^g.clear == 0 {
				return
			}
			if bound := sizes(g.Model, g.Model.Conflicts(i)&g.clear) * d; bound <= best.first {
				consider(g, i, m, bound)
			}
		})
	}
	return best.choice()
}

// sizes returns the sum of the sizes of the placements, in units.
func sizes(b *mig.Model, l mig.Layout) float64 {
	n := 0
	for j := range l.Indices() {
		n += b.Placements[j].Size
	}
	return float64(n)
}
