package preempt

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// victim is a running job that a preemptor may stop.
type victim struct {
	id    uint32
	spots []offer.Spot // the slices that the job holds
	lost  float64      // the run time in seconds that the job loses
}

// victimSearch is a search for victims that make room for a job. cluster contains the state of the cluster without the
// plan. In this state, the slices of jobs that have ended are not busy.
type victimSearch struct {
	cluster *offer.Cluster
	victims []victim
	// enough reports whether the job could start on the node, leaving its slices aside, if the victims with these
	// indices were stopped. If enough is nil, the job could always start.
	enough func(node int, stop []int) bool
}

// choose returns the ids of the jobs to stop for j. It chooses as few jobs as possible and, among sets with the same
// number of jobs, one that loses the least run time. The result is exact for a job that needs one slice. For other
// jobs, a smaller set may exist, but no job can be removed from the chosen set. stop is empty if the job already fits,
// and ok is false if no set of victims makes room.
func (s victimSearch) choose(j *offer.Job) (stop []uint32, ok bool) {
	owner := map[offer.Spot]int{}
	on := make([][]int, len(s.cluster.Nodes)) // the victims on each node
	for v := range s.victims {
		for _, at := range s.victims[v].spots {
			owner[at] = v
			n := s.cluster.Pool.GPU(at.GPU).Node
			on[n] = append(on[n], v)
		}
	}
	var options [][]int
	for n := range s.cluster.Nodes {
		if j.EligibleNodes != nil && !slices.Contains(j.EligibleNodes, n) {
			continue
		}
		var best []int
		var found bool
		if len(j.Wants) == 1 && j.Wants[0].Count == 1 {
			best, found = s.oneSlice(n, j.Wants[0], owner)
		} else {
			best, found = s.severalSlices(n, j, unique(on[n]), owner)
		}
		if found {
			options = append(options, best)
		}
	}
	if len(options) < max(j.Nodes, 1) {
		return nil, false
	}
	slices.SortStableFunc(options, s.compare)
	all := slices.Concat(options[:max(j.Nodes, 1)]...)
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		stop = append(stop, s.victims[v].id)
	}
	return stop, true
}

// compare compares the costs of two sets of victims.
func (s victimSearch) compare(a, b []int) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(s.lost(a), s.lost(b)))
}

func (s victimSearch) lost(stop []int) (seconds float64) {
	for _, v := range stop {
		seconds += s.victims[v].lost
	}
	return seconds
}

// oneSlice returns the cheapest set of victims that makes room for one slice on a node.
func (s victimSearch) oneSlice(node int, w offer.Want, owner map[offer.Spot]int) (best []int, found bool) {
	for _, k := range s.cluster.Nodes[node] {
		g := s.cluster.Pool.GPU(k)
		if g.Model == nil {
			continue
		}
		for _, name := range append([]string{w.Needed()}, w.Alternatives...) {
			p, ok := g.Model.ProfileIndex(name)
			if !ok {
				continue
			}
			for i := range (g.Model.OfProfile(p) & g.Offerable).Indices() {
				stop, ok := s.forPlacement(k, g, i, owner)
				if !ok || found && s.compare(stop, best) >= 0 || s.enough != nil && !s.enough(node, stop) {
					continue
				}
				best, found = stop, true
			}
		}
	}
	return best, found
}

// forPlacement returns the cheapest set of victims that makes room for a placement: all victims that overlap it and, if
// it needs other resources held by slices (the instance limit, media engines), the cheapest of the victims that hold
// them.
func (s victimSearch) forPlacement(
	k int, g place.GPU, placement int, owner map[offer.Spot]int,
) (best []int, found bool) {
	if g.Model.Units(placement)&g.Blocked != 0 {
		return nil, false
	}
	var must, may []int
	for b := range g.Busy.Indices() {
		v, known := owner[offer.Spot{GPU: k, Placement: b}]
		overlaps := b == placement || g.Model.Conflicts(placement).Has(b)
		switch {
		case overlaps && !known:
			return nil, false
		case overlaps:
			must = append(must, v)
		case known:
			may = append(may, v)
		}
	}
	must, may = unique(must), unique(may)
	may = slices.DeleteFunc(may, func(v int) bool { return slices.Contains(must, v) })
	for set := range uint64(1) << len(may) { // at most 12 placements are busy, and usually the first set fits
		stop := slices.Clone(must)
		for bit, v := range may {
			if set>>bit&1 == 1 {
				stop = append(stop, v)
			}
		}
		slices.Sort(stop)
		if g.Model.Fits(without(g.Busy, k, stop, owner), placement) && (!found || s.compare(stop, best) < 0) {
			best, found = stop, true
		}
		if found && set == 0 {
			break
		}
	}
	return best, found
}

func unique(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// without returns the busy placements of GPU k, except those of the stopped jobs.
func without(busy mig.Layout, k int, stop []int, owner map[offer.Spot]int) mig.Layout {
	for b := range busy.Indices() {
		if v, known := owner[offer.Spot{GPU: k, Placement: b}]; known && slices.Contains(stop, v) {
			busy = busy.Without(b)
		}
	}
	return busy
}
