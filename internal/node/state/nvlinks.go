package state

// Pair holds the UUIDs of two GPUs; the GPU with the lower index comes first.
type Pair [2]string

// MostFull returns the number of GPUs on the node that can be full GPUs.
func (n *Node) MostFull() (count int) {
	for _, c := range n.Cards {
		if c.MayBeFull() {
			count++
		}
	}
	return count
}

// GroupNVLinks sets the group of each GPU (place.GPU.NVLink) from the recorded NVLinks. The caller holds the node's
// lock.
func (n *Node) GroupNVLinks() {
	group := make([]int, len(n.Cards))
	for g := range group {
		group[g] = g + 1
	}
	for x, a := range n.Cards {
		for y, b := range n.Cards[x+1:] {
			if n.NVLinks[Pair{a.UUID, b.UUID}] {
				from, to := group[x+1+y], group[x]
				for k := range group {
					if group[k] == from {
						group[k] = to
					}
				}
			}
		}
	}
	for g, c := range n.Cards {
		members := 0
		for k, o := range n.Cards {
			if group[k] == group[g] && o.MayBeFull() {
				members++
			}
		}
		if c.nvlink = group[g]; members < 2 || members == n.MostFull() || !c.MayBeFull() {
			c.nvlink = 0
		}
	}
}
