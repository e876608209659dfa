package place

import "math"

// The policies in this file have costs that depend only on the resulting layout. In all functions, g is the group
// before the placement, and i is the placement.

// firstFit chooses the lowest start on the lowest GPU.
func firstFit(*Group, int) cost { return cost{} }

// driver chooses the lowest GPU and, on that GPU, the start that NVIDIA's driver would choose: the one after which the
// most placements still fit. On an H100, this rule yields the starts that were observed for seven 1g instances: 6, 4,
// 5, 0, 1, 2, 3.
func driver(g *Group, i int) cost { return cost{float64(g.GPUs[0]), -float64(g.Busy.With(i).CC)} }

// bestFit chooses the GPU with the fewest free units and, on that GPU, the start that the driver would choose.
func bestFit(g *Group, i int) cost {
	n := g.Busy.With(i)
	return cost{float64(n.Units), -float64(n.CC)}
}

// mostReach maximizes the remaining reach of all GPUs together, as the package comment explains. Ties are detected
// reliably, because equal ratios of whole numbers are equal as floating-point numbers.
func mostReach(g *Group, i int) cost {
	n := g.Busy.With(i)
	return cost{-float64(n.Reach) / float64(g.Busy.Reach), float64(g.Busy.CC - n.CC)}
}

// mostCC chooses the placement after which the most placements still fit on the GPU (GRMU's MCC).
func mostCC(g *Group, i int) cost { return cost{first: -float64(g.Busy.With(i).CC)} }

// mostECC is like mostCC, but weights the placements by the frequency of requests for their profiles (GRMU's MECC).
func mostECC(g *Group, i int, weights []float64) cost {
	return cost{first: -g.Busy.With(i).WeightedCC(weights)}
}

// fragStep is the step to which fragmentation is rounded. Without rounding, sums of fractions that should be equal
// would differ between layouts because of floating-point errors.
const fragStep = 1e-9

// FragAware prefers GPUs whose load, the fraction of their units that are busy, is below Threshold. Among these GPUs,
// it chooses the placement after which the GPU is least fragmented. If the instance fits on none of them, the same rule
// is applied to the other GPUs. Among equally good placements, FragAware chooses the placement that is cheapest to
// acquire (arXiv 2512.16099).
type FragAware struct{ Threshold float64 }

func (FragAware) with(share float64) Policy { return FragAware{Threshold: share} }

// Choose implements [Policy].
func (f FragAware) Choose(s *Situation, r Request) Choice {
	best := none
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		c := candidate{cost{math.Round(g.Busy.With(i).Frag / fragStep), float64(m)}, g.GPUs[0], i}
		if load := 1 - float64(g.Busy.Units)/float64(g.Model.Grid); load >= f.Threshold {
			c.first += 2 / fragStep // greater than any fragmentation
		}
		if c.before(best) {
			best = c
		}
	})
	return best.choice()
}

// GRMU divides the GPUs into two baskets. Instances that span a whole GPU are placed in the heavy basket, and all other
// instances in the light basket. Heavy is the largest fraction of the GPUs that the heavy basket can contain. If an
// instance does not fit on any GPU in its basket, an empty GPU is added to the basket. Within a basket, GRMU chooses
// the first GPU on which the instance fits (arXiv 2502.01909). A GPU's busy instances determine its basket.
type GRMU struct{ Heavy float64 }

func (GRMU) with(share float64) Policy { return GRMU{Heavy: share} }

// Choose implements [Policy].
func (f GRMU) Choose(s *Situation, r Request) Choice {
	var heavy, light, all int
	for _, b := range s.Pool.models {
		for _, g := range b.groups {
			all += len(g.GPUs)
			switch {
			case isWhole(g):
				heavy += len(g.GPUs)
			case g.Busy.Layout != 0:
				light += len(g.GPUs)
			}
		}
	}
	most := int(f.Heavy * float64(all))
	if all > 0 {
		most = max(most, 1)
	}
	best := none
	for _, opening := range []bool{false, true} { // first the GPUs in the basket, then empty GPUs
		s.Pool.each(r.Profile, func(g *Group) bool { return (g.Busy.Layout == 0) == opening }, func(g *Group, i int) {
			whole := g.Model.Placements[i].Size == g.Model.Grid
			if opening && (whole && heavy >= most || !whole && light >= max(all-most, 1)) {
				return
			}
			if c := (candidate{driver(g, i), g.GPUs[0], i}); c.before(best) {
				best = c
			}
		})
		if best != none {
			break
		}
	}
	return best.choice()
}

// isWhole reports whether one instance uses all units of each GPU in the group.
func isWhole(g *Group) bool {
	for i := range g.Busy.Layout.Indices() {
		if g.Model.Placements[i].Size == g.Model.Grid {
			return true
		}
	}
	return false
}
