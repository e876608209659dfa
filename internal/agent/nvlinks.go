package agent

// pair holds the UUIDs of two GPUs; the GPU with the lower index comes first.
type pair [2]string

// mostFull returns the number of GPUs on the node that can be full GPUs.
func (n *node) mostFull() (count int) {
	for _, c := range n.cards {
		if c.mayBeFull() {
			count++
		}
	}
	return count
}

// groupNVLinks sets the group of each GPU (place.GPU.NVLink) from the recorded NVLinks. The caller holds the node's lock.
func (n *node) groupNVLinks() {
	group := make([]int, len(n.cards))
	for g := range group {
		group[g] = g + 1
	}
	for x, a := range n.cards {
		for y, b := range n.cards[x+1:] {
			if n.nvlinks[pair{a.UUID, b.UUID}] {
				from, to := group[x+1+y], group[x]
				for k := range group {
					if group[k] == from {
						group[k] = to
					}
				}
			}
		}
	}
	for g, c := range n.cards {
		members := 0
		for k, o := range n.cards {
			if group[k] == group[g] && o.mayBeFull() {
				members++
			}
		}
		if c.nvlink = group[g]; members < 2 || members == n.mostFull() || !c.mayBeFull() {
			c.nvlink = 0
		}
	}
}
