package preempt

import (
	"cmp"
	"slices"
	"sort"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// severalSlices returns a set of victims that makes room for several slices on a node. It takes victims, beginning with
// those that lose the least run time, until the slices fit, and then removes all victims that are not necessary. here
// lists the victims on the node.
func (s victimSearch) severalSlices(
	node int, j *offer.Job, here []int, owner map[offer.Spot]int,
) (stop []int, found bool) {
	slices.SortStableFunc(here, func(a, b int) int { return cmp.Compare(s.victims[a].lost, s.victims[b].lost) })
	fits := func(stop []int) bool {
		return s.fits(node, j, stop, owner) && (s.enough == nil || s.enough(node, stop))
	}
	n := sort.Search(len(here)+1, func(n int) bool { return fits(here[:n]) })
	if n > len(here) {
		return nil, false
	}
	stop = slices.Clone(here[:n])
	for _, v := range slices.Backward(here[:n]) {
		rest := slices.DeleteFunc(slices.Clone(stop), func(o int) bool { return o == v })
		if fits(rest) {
			stop = rest
		}
	}
	slices.Sort(stop)
	return stop, true
}

// fits reports whether all slices that a job needs on a node would fit there once the given jobs were stopped.
func (s victimSearch) fits(node int, j *offer.Job, stop []int, owner map[offer.Spot]int) bool {
	var gpus []place.GPU
	for _, k := range s.cluster.Nodes[node] {
		g := s.cluster.Pool.GPU(k)
		g.Busy = without(g.Busy, k, stop, owner)
		gpus = append(gpus, g)
	}
	alone := offer.NewCluster(s.cluster.Policy, gpus)
	alone.Now, alone.Making = s.cluster.Now, s.cluster.Making
	one := *j
	one.Nodes, one.EligibleNodes, one.DeferredNodes = 1, nil, nil
	spots, _ := alone.Find(&one, nil)
	return spots != nil
}
