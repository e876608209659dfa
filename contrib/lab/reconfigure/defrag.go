package reconfigure

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Movable returns the job that holds a busy instance and reports whether the instance can be moved. The job is given by
// its index in the caller's list, which also appears in the plan's steps.
type Movable func(at place.Spot) (job int, ok bool)

// lessFrag is the minimum decrease in fragmentation for which a move is worthwhile. It exceeds the rounding errors that
// occur when fractions are summed.
const lessFrag = 1e-9

// AfterDeparture returns FragAware's plan after a job has left GPU k (arXiv 2512.16099). A GPU is busy if its load is
// at least the threshold (0.4 in the policy). If GPU k is busy, the plan moves instances within it; otherwise, it moves
// instances from busy GPUs to GPU k. To distribute the load, GPU k's load must stay below the source GPU's previous
// load. As long as any move reduces fragmentation, the plan adds the move after which fragmentation is lowest. The
// fragmentation of both GPUs counts, so no move improves one GPU at the expense of the other. The plan moves an
// instance at most once. Among equally good moves, AfterDeparture prefers a placement with an idle instance, and then
// the lowest GPU and start.
func AfterDeparture(pool *place.Pool, k int, threshold float64, movable Movable) Plan {
	if pool.GPU(k).Model == nil {
		return nil
	}
	d := draft{gpus: gpusOf(pool), movable: movable, moved: map[place.Spot]bool{}}
	for {
		best, found := move{}, false
		for f, g := range d.gpus {
			if inside := d.load(k) >= threshold; inside != (f == k) || g.Model == nil || d.load(f) < threshold {
				continue
			}
			for _, m := range d.moves(f, k) {
				if f != k && !d.lightens(m) {
					continue
				}
				if m.gain > lessFrag && (!found || m.better(best)) {
					best, found = m, true
				}
			}
		}
		if !found {
			return d.plan
		}
		d.make(best)
	}
}

// AfterRejection returns GRMU's plan after a request was rejected (arXiv 2502.01909, Algorithm 4). It selects the most
// fragmented GPU in the light basket and, among equally fragmented GPUs, the one with the lowest index. It then
// computes the layout that would result if the driver placed this GPU's instances on an empty GPU, in the order of
// their starts, and moves the instances whose placement changes. It differs from the paper in three ways: fragmentation
// is defined as in [mig.LayoutInfo], instances that cannot be moved keep their placements, and the plan is nil if the
// moves would not reduce fragmentation.
func AfterRejection(pool *place.Pool, movable Movable) Plan {
	most, frag := -1, 0.0
	for k := range pool.Len() {
		if n := pool.Info(k); n != nil && n.Frag > frag && n.Layout != 0 && !isWhole(n.Layout, pool.GPU(k).Model) {
			most, frag = k, n.Frag
		}
	}
	if most < 0 {
		return nil
	}
	d := draft{gpus: gpusOf(pool), movable: movable}
	if mock, ok := d.repack(most); ok && d.frag(most, mock) < frag-lessFrag {
		d.shift(most, mock)
	}
	return d.plan
}

// Consolidate returns the plan for GRMU's consolidation (arXiv 2502.01909). It considers GPUs on which exactly one
// instance is busy and this instance occupies half of the units (a 3g or a 4g on an A100). The plan turns two half-full
// GPUs into one full and one empty GPU. Consolidate begins with the GPUs that have the fewest possible partners: a
// 4g.20gb, which has only one start, never fits alongside another one. If possible, the plan moves the instance on the
// GPU with the higher index; otherwise, it moves the other one.
func Consolidate(pool *place.Pool, movable Movable) Plan {
	d := draft{gpus: gpusOf(pool), movable: movable}
	var halves []int
	for k, g := range d.gpus {
		if i, one := single(g.Busy); g.Model != nil && one && 2*g.Model.Placements[i].Size == g.Model.Grid {
			halves = append(halves, k)
		}
	}
	joins := map[[2]int]move{} // the keys are the indices of both GPUs, lower index first
	partners := map[int]int{}
	for a, low := range halves {
		for _, high := range halves[a+1:] {
			all := append(d.moves(high, low), d.moves(low, high)...)
			if len(all) > 0 {
				joins[[2]int{low, high}] = all[0]
				partners[low]++
				partners[high]++
			}
		}
	}
	fewestPartners := func(among []int) int {
		return slices.MinFunc(
			among,
			func(a, b int) int { return cmp.Or(cmp.Compare(partners[a], partners[b]), cmp.Compare(a, b)) },
		)
	}
	for len(halves) > 0 {
		a := fewestPartners(halves)
		halves = slices.DeleteFunc(halves, func(k int) bool { return k == a })
		var with []int
		for _, b := range halves {
			if _, ok := joins[[2]int{min(a, b), max(a, b)}]; ok {
				with = append(with, b)
			}
		}
		gone := []int{a}
		if len(with) > 0 {
			b := fewestPartners(with)
			d.make(joins[[2]int{min(a, b), max(a, b)}])
			halves = slices.DeleteFunc(halves, func(k int) bool { return k == b })
			gone = append(gone, b)
		}
		for _, x := range gone {
			for _, k := range halves {
				if _, ok := joins[[2]int{min(x, k), max(x, k)}]; ok {
					partners[k]--
				}
			}
		}
	}
	return d.plan
}

// isWhole reports whether one instance uses all units of its GPU.
func isWhole(l mig.Layout, b *mig.Model) bool {
	i, one := single(l)
	return one && b.Placements[i].Size == b.Grid
}

// single returns the first placement in a set, and whether it is the only one.
func single(l mig.Layout) (i int, one bool) {
	for i = range l.Indices() {
		return i, l.Count() == 1
	}
	return 0, false
}
