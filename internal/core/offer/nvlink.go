package offer

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Connected selects n of the GPUs in free for a job that needs n full GPUs and returns them in ascending order. free
// lists GPUs of one node, and gpu returns a GPU's state. The result is nil if free contains fewer than n GPUs. The
// chosen set contains as many pairs of GPUs connected by NVLinks as possible. Among these sets, Connected prefers those
// with the fewest GPUs whose MIG mode must be switched, and then those that leave the most connected pairs among the
// other GPUs.
//
// NVLinks connect all GPUs of a group with each other (place.GPU). If one group has enough GPUs, all pairs of the set
// are connected. Otherwise, the number of connected pairs is highest if the set includes the entire largest group.
func Connected(gpu func(int) place.GPU, free []int, n int) (set []int) {
	if len(free) < n {
		return nil
	}
	groups := groupsOf(gpu, free)
	switches := func(group []int) int {
		full := slices.IndexFunc(group, func(k int) bool { return gpu(k).Idle&gpu(k).Model.Full() == 0 })
		if full < 0 {
			full = len(group)
		}
		return max(0, n-full)
	}
	for n > 0 {
		best := slices.MinFunc(groups, func(a, b []int) int {
			whole := cmp.Compare(min(len(b), n), min(len(a), n))
			return cmp.Or(whole, cmp.Compare(switches(a), switches(b)), cmp.Compare(len(a), len(b)))
		})
		groups = slices.DeleteFunc(groups, func(g []int) bool { return g[0] == best[0] })
		best = best[:min(len(best), n)]
		set, n = append(set, best...), n-len(best)
	}
	slices.Sort(set)
	return set
}

// groupsOf returns the groups of GPUs that are connected with each other by NVLinks. Within each group, the full GPUs
// come first.
func groupsOf(gpu func(int) place.GPU, gpus []int) (groups [][]int) {
	index := map[int]int{}
	for _, full := range []bool{true, false} {
		for _, k := range gpus {
			g := gpu(k)
			if (g.Idle&g.Model.Full() != 0) != full {
				continue
			}
			at, known := index[g.NVLink]
			if !known || g.NVLink == 0 {
				at = len(groups)
				groups, index[g.NVLink] = append(groups, nil), at
			}
			groups[at] = append(groups[at], k)
		}
	}
	return groups
}

// setLinked determines whether there is a node on which NVLinks connect only some of the GPUs. If there is no such
// node, the functions in this file do not change any spots.
func (c *Cluster) setLinked() {
	c.linked = false
	for k := range c.Pool.Len() {
		c.linked = c.linked || c.Pool.GPU(k).NVLink != 0
	}
}

// connect replaces the last n spots, at which the policy has placed the n full GPUs of one want, with spots on the GPUs
// chosen by Connected. s contains the state of the given GPUs, which belong to one node, including all of the job's
// spots.
func (c *Cluster) connect(s *place.Situation, gpus []int, all []Spot, n int) {
	others, chosen := all[:len(all)-n], all[len(all)-n:]
	var free []int
	for _, k := range gpus {
		used := slices.ContainsFunc(others, func(at Spot) bool { return at.GPU == k })
		g := c.Pool.GPU(k)
		if !used && g.Model != nil && g.Model.Open(g.Busy, g.Blocked)&g.Offerable&g.Model.Full() != 0 {
			free = append(free, k)
		}
	}
	set := Connected(c.Pool.GPU, free, n)
	if set == nil {
		return
	}
	for _, at := range chosen {
		s.Pool.Set(slices.Index(gpus, at.GPU), c.Pool.GPU(at.GPU))
	}
	for i, k := range set {
		chosen[i] = Spot{GPU: k, Placement: fullPlacement(c.Pool.GPU(k).Model)}
		s.Pool.Start(slices.Index(gpus, k), chosen[i].Placement, math.Inf(1))
	}
}

// connectReserved is like connect, but for the spots of a reservation that begins at the given time. all lists the
// node's mig.Full spots, and taken contains the spots that the job uses on each GPU.
func (c *Cluster) connectReserved(spots []Spot, all []freeSlot, at float64, taken map[int]mig.Layout) {
	full := map[int]int{}
	var free []int
	for _, x := range all {
		if x.free <= at && taken[x.GPU].Without(x.Placement) == 0 {
			free, full[x.GPU] = append(free, x.GPU), x.Placement
		}
	}
	for i, k := range Connected(c.Pool.GPU, free, len(spots)) {
		delete(taken, spots[i].GPU)
		spots[i] = Spot{GPU: k, Placement: full[k]}
	}
	for _, s := range spots {
		taken[s.GPU] = mig.Layout(0).With(s.Placement)
	}
}

// fullPlacement returns the index of the placement of the mig.Full profile.
func fullPlacement(b *mig.Model) int {
	for i := range b.Full().Indices() {
		return i
	}
	return -1
}

// spare keeps connected GPUs free for jobs that need several full GPUs. If the spot is on a GPU without busy instances,
// it considers the node's GPUs with the same state, which are equally suitable, and returns the same placement on the
// GPU with the fewest NVLinks to other free GPUs.
func (c *Cluster) spare(at Spot) Spot {
	g := c.Pool.GPU(at.GPU)
	if !c.linked || g.Busy != 0 || g.Blocked != 0 {
		return at
	}
	on := c.Nodes[slices.IndexFunc(c.Nodes, func(gpus []int) bool { return slices.Contains(gpus, at.GPU) })]
	free := map[int]int{} // by group
	for _, k := range on {
		o := c.Pool.GPU(k)
		if o.Model != nil && o.Offerable&o.Model.Full() != 0 && o.Busy == 0 && o.Blocked == 0 && o.NVLink != 0 {
			free[o.NVLink]++
		}
	}
	for _, k := range on {
		o := c.Pool.GPU(k)
		same := o.Model == g.Model && o.Busy == 0 && o.Blocked == 0 && o.Idle == g.Idle && o.Offerable == g.Offerable
		if same && max(1, free[o.NVLink]) < max(1, free[c.Pool.GPU(at.GPU).NVLink]) {
			at.GPU = k
		}
	}
	return at
}
