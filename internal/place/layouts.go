package place

import "math"

// This file contains the policies whose cost depends only on the resulting layout. g is the group before the placement,
// and i is the placement.

// firstFit takes the lowest start on the lowest GPU.
func firstFit(*Group, int) cost { return cost{} }

// driver takes the lowest GPU, and the start that NVIDIA's driver would choose on this GPU. This is the start that
// leaves the most placements open. The rule results in the order that was observed on an H100, where seven 1g instances
// were put at 6, 4, 5, 0, 1, 2, 3.
func driver(g *Group, i int) cost { return cost{float64(g.GPUs[0]), -float64(g.Node.With(i).CC)} }

// bestFit takes the GPU with the fewest free units, and the start that the driver would choose on
// it.
func bestFit(g *Group, i int) cost {
	n := g.Node.With(i)
	return cost{float64(n.Units), -float64(n.CC)}
}

// mostReach keeps the largest reach of all GPUs together, as the package comment explains. Equal ratios of whole
// numbers are equal as floating-point numbers, so ties are recognised.
func mostReach(g *Group, i int) cost {
	n := g.Node.With(i)
	return cost{-float64(n.Reach) / float64(g.Node.Reach), float64(g.Node.CC - n.CC)}
}

// mostCC leaves the most placements open on its GPU (MCC of GRMU).
func mostCC(g *Group, i int) cost { return cost{first: -float64(g.Node.With(i).CC)} }

// mostECC is like mostCC, but weights each placement by how often its profile is requested (MECC of GRMU).
func mostECC(g *Group, i int, weights []float64) cost {
	return cost{first: -g.Node.With(i).WeightedCC(weights)}
}

// leastLost minimises the increase of the free units that no instances of a profile can use, summed with weights over
// the profiles (fragmentation gradient descent).
func leastLost(g *Group, i int, weights []float64) cost {
	return cost{first: g.Node.With(i).Lost(weights) - g.Node.Lost(weights)}
}

// fragStep is the precision to which fragmentation is rounded, because the rounding errors of equal sums of fractions
// differ between layouts.
const fragStep = 1e-9

// FragAware prefers the GPUs whose load is below the threshold. Among these GPUs, it takes the placement that leaves
// its GPU least fragmented. If none of them has room for the instance, it chooses among the other GPUs in the same
// way. Ties go to the cheaper acquisition (arXiv 2512.16099). Load is the share of a GPU's units that is busy.
type FragAware struct{ Threshold float64 }

func (FragAware) with(share float64) Policy { return FragAware{Threshold: share} }

// Choose implements [Policy].
func (f FragAware) Choose(s *Situation, r Request) Choice {
	best := none
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		c := candidate{cost{math.Round(g.Node.With(i).Frag / fragStep), float64(m)}, g.GPUs[0], i}
		if load := 1 - float64(g.Node.Units)/float64(g.Model.Grid); load >= f.Threshold {
			c.first += 2 / fragStep // larger than any fragmentation, which is at most 1
		}
		if c.before(best) {
			best = c
		}
	})
	return best.choice()
}

// GRMU has two baskets of GPUs. Instances of a whole GPU go into the heavy basket, which may have at most a share of
// all GPUs. All other instances go into the light basket. When no GPU of a basket has room for an instance, the basket
// takes an empty GPU. Within a basket the policy is first fit (arXiv 2502.01909). The busy instances of a GPU determine
// its basket.
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
			case g.Node.Layout != 0:
				light += len(g.GPUs)
			}
		}
	}
	most := int(f.Heavy * float64(all))
	if all > 0 {
		most = max(most, 1)
	}
	best := none
	for _, opening := range []bool{false, true} { // a GPU of the basket if possible, otherwise an empty one
		s.Pool.each(r.Profile, func(g *Group) bool { return (g.Node.Layout == 0) == opening }, func(g *Group, i int) {
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

// isWhole reports whether one instance takes all units of the group's GPUs.
func isWhole(g *Group) bool {
	for i := range g.Node.Layout.Indices() {
		if g.Model.Placements[i].Size == g.Model.Grid {
			return true
		}
	}
	return false
}
