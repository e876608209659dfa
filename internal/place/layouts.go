package place

import "math"

// The policies that ask no more than what a layout becomes: g is what stands now, i the placement.

// firstFit takes the lowest GPU, and on it the lowest start.
func firstFit(*Group, int) cost { return cost{} }

// driver takes the lowest GPU, and on it what NVIDIA's driver would: the start that leaves most placements open. It
// gives the order that was seen on an H100, where seven 1g instances landed at 6, 4, 5, 0, 1, 2, 3.
func driver(g *Group, i int) cost { return cost{float64(g.GPUs[0]), -float64(g.Busy.With(i).CC)} }

// bestFit takes the GPU that has the fewest free units left, and the driver's start on it.
func bestFit(g *Group, i int) cost {
	n := g.Busy.With(i)
	return cost{float64(n.Units), -float64(n.CC)}
}

// mostReach keeps the most futures of all GPUs together: see the essay of the package. Equal ratios of whole numbers
// are equal as floating-point numbers, so ties are ties.
func mostReach(g *Group, i int) cost {
	n := g.Busy.With(i)
	return cost{-float64(n.Reach) / float64(g.Busy.Reach), float64(g.Busy.CC - n.CC)}
}

// mostCC leaves the most placements open on its GPU (GRMU's MCC).
func mostCC(g *Group, i int) cost { return cost{first: -float64(g.Busy.With(i).CC)} }

// mostECC is mostCC with each placement weighted by how often its profile is asked for (GRMU's MECC).
func mostECC(g *Group, i int, weights []float64) cost {
	return cost{first: -g.Busy.With(i).WeightedCC(weights)}
}

// leastLost makes the least room useless: the weighted sum of the free units that no instances of a profile can use
// grows least (fragmentation gradient descent).
func leastLost(g *Group, i int, weights []float64) cost {
	return cost{first: g.Busy.With(i).Lost(weights) - g.Busy.Lost(weights)}
}

// FragAware takes, of the GPUs whose load is below the threshold, else of the others, the placement that leaves its GPU
// least fragmented; of equal ones one that takes the cheaper means (arXiv 2512.16099). Load is the share of a GPU's
// units that is busy.
type FragAware struct{ Threshold float64 }

func (FragAware) with(share float64) Policy { return FragAware{Threshold: share} }

// Choose implements [Policy].
func (f FragAware) Choose(s *Situation, r Request) Choice {
	best := none
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		// Rounded, since the same sum of fractions may come out differently for two layouts.
		c := candidate{cost{math.Round(g.Busy.With(i).Frag / lessFrag), float64(m)}, g.GPUs[0], i}
		if load := 1 - float64(g.Busy.Units)/float64(g.Model.Grid); load >= f.Threshold {
			c.first += 2 / lessFrag // no fragmentation is larger than 1
		}
		if c.before(best) {
			best = c
		}
	})
	return best.choice()
}

// GRMU keeps two baskets of GPUs: instances of a whole GPU go into the heavy one, which may have at most a share of all
// GPUs, everything else into the light one; a basket takes an empty GPU when nothing in it has room. First fit inside
// (arXiv 2502.01909). A GPU is in the basket that what is busy on it belongs to.
type GRMU struct{ Heavy float64 }

func (GRMU) with(share float64) Policy { return GRMU{Heavy: share} }

// Choose implements [Policy].
func (f GRMU) Choose(s *Situation, r Request) Choice {
	var heavy, light, all int
	for _, b := range s.Pool.boards {
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
	for _, opening := range []bool{false, true} { // a GPU of the basket, else an empty one
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

// isWhole reports whether one instance takes all units of the group's GPUs.
func isWhole(g *Group) bool {
	for i := range g.Busy.Layout.Indices() {
		if g.Model.Placements[i].Size == g.Model.Grid {
			return true
		}
	}
	return false
}
