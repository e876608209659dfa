package place

import (
	"cmp"
	"slices"

	"caelum/internal/mig"
)

// Moves of busy instances. A MIG instance cannot be moved: its job is stopped, and starts again in another one (a
// requeue, or a site's checkpoint command). So these are plans, for a caller to carry out, or only to report.

// Movable says which job holds a busy instance, and whether it may be moved: an index in the caller's list, which the
// plan's steps bear.
type Movable func(at Spot) (job int, ok bool)

// lessFrag is by how much fragmentation must fall for a move: more than what the sums of fractions are rounded by.
const lessFrag = 1e-9

// Depart is what FragAware does when a job has left GPU k (arXiv 2512.16099): while some move lowers fragmentation, the
// one that leaves the least. A busy GPU, whose load is at least the threshold (0.4 in the policy), is tidied up inside;
// to a lazy one instances move from busy GPUs, as long as its load stays below that of the GPU that they come from:
// moves are to spread load, not to pass it on. Fragmentation is the sum of that of the GPUs concerned, so what is
// mended on one is not broken on another. A GPU that has been filled up counts as busy from then on. An instance moves
// once at most. Ties prefer an idle instance that stands there, then the lowest GPU and start.
func (p *Pool) Depart(k int, threshold float64, movable Movable) Plan {
	if p.GPU(k).Model == nil {
		return nil
	}
	d := draft{gpus: p.snapshot(), movable: movable, moved: map[Spot]bool{}}
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

// Reject is what GRMU does when a request was rejected (arXiv 2502.01909, Algorithm 4): the instances of the most
// fragmented GPU of the light basket (the lowest, if several are) are placed once more, in the order of their starts,
// each as the driver would, on an empty GPU of the same GPU model; those that land elsewhere move. Not from there:
// fragmentation is measured as everywhere in this package, what cannot be moved stays where it is, and the plan is nil
// if it would leave no less fragmentation than before.
func (p *Pool) Reject(movable Movable) Plan {
	most, frag := -1, 0.0
	for _, b := range p.boards {
		for _, g := range b.groups {
			if g.Busy.Layout == 0 || isWhole(g) {
				continue
			}
			if g.Busy.Frag > frag || g.Busy.Frag == frag && g.GPUs[0] < most {
				most, frag = g.GPUs[0], g.Busy.Frag
			}
		}
	}
	if most < 0 {
		return nil
	}
	d := draft{gpus: p.snapshot(), movable: movable}
	if mock, ok := d.again(most); ok && d.frag(most, mock) < frag-lessFrag {
		d.shift(most, mock)
	}
	return d.plan
}

// Merge is GRMU's consolidation (arXiv 2502.01909): two GPUs, on each of which nothing is busy but one instance of half
// the units (a 3g or a 4g of an A100), become one that is full and one that is empty. GPUs with the fewest partners
// choose first: a 4g.20gb, which has one start only, never goes with another 4g.20gb. The instance on the higher GPU
// moves if it can, else the other one.
func (p *Pool) Merge(movable Movable) Plan {
	d := draft{gpus: p.snapshot(), movable: movable}
	var halves []int
	for k, g := range d.gpus {
		if i, one := single(g.Layout); g.Model != nil && one && 2*g.Model.Placements[i].Size == g.Model.Grid {
			halves = append(halves, k)
		}
	}
	joins := map[[2]int]move{} // by target and source, in that order of preference
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
	pickiest := func(among []int) int {
		return slices.MinFunc(
			among,
			func(a, b int) int { return cmp.Or(cmp.Compare(partners[a], partners[b]), cmp.Compare(a, b)) },
		)
	}
	for len(halves) > 0 {
		a := pickiest(halves)
		halves = slices.DeleteFunc(halves, func(k int) bool { return k == a })
		var with []int
		for _, b := range halves {
			if _, ok := joins[[2]int{min(a, b), max(a, b)}]; ok {
				with = append(with, b)
			}
		}
		gone := []int{a}
		if len(with) > 0 {
			b := pickiest(with)
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

// single is the placement in a set that has exactly one.
func single(l mig.Layout) (i int, one bool) {
	for i = range l.Indices() {
		return i, l.Count() == 1
	}
	return 0, false
}
