package place

// nodeSlots holds one slot for each node. A job that needs several full GPUs requires all of them to be free on one
// node at the same time, which the slots of a single GPU cannot represent. Policies that use expected ends therefore
// treat all GPUs of a node that can be full GPUs as one additional slot, which is blocked by an instance on any of
// these GPUs. GPU.Node identifies the node of a GPU.
type nodeSlots []nodeSlot

type nodeSlot struct {
	size float64 // units
	free float64 // the slot's time F, in seconds, at which all jobs on the node's instances will have ended
}

// nodes holds the slots of a pool's nodes and keeps track of the slots that nodeSlots must recompute after GPUs change.
type nodes struct {
	slots nodeSlots
	on    [][]int // for each node, the indices in the pool of the GPUs that can be full GPUs
	known bool    // false before the first call to nodeSlots and after a GPU has been replaced
	stale []int   // nodes whose slots have changed
}

// change records that the state of a GPU has changed from old to g. The two are equal if only the end of an instance
// has changed.
func (n *nodes) change(old, g *GPU) {
	switch {
	case !n.known:
	case old.Model != g.Model, old.Node != g.Node, len(n.stale) > len(n.slots):
		n.known = false
	case g.Model != nil && g.Model.Full() != 0:
		n.stale = append(n.stale, g.Node)
	}
}

// nodeSlots returns the slots of the nodes, or nil if no GPU can be a full GPU. The slots are valid until the pool
// changes.
func (p *Pool) nodeSlots() nodeSlots {
	n := &p.nodes
	if !n.known {
		*n = nodes{known: true}
		for k := range p.gpus {
			g := &p.gpus[k]
			if g.Model == nil || g.Model.Full() == 0 {
				continue
			}
			for len(n.slots) <= g.Node {
				n.slots, n.on = append(n.slots, nodeSlot{}), append(n.on, nil)
			}
			n.slots[g.Node].size += float64(g.Model.Grid)
			n.on[g.Node], n.stale = append(n.on[g.Node], k), append(n.stale, g.Node)
		}
	}
	for _, node := range n.stale {
		n.slots[node].free = 0
		for _, k := range n.on[node] {
			g := &p.gpus[k]
			for full := range g.Model.Full().Indices() {
				n.slots[node].free = max(n.slots[node].free, g.free[full])
			}
		}
	}
	n.stale = n.stale[:0]
	return n.slots
}

// cost returns the additional time in seconds for which an instance on the k-th GPU blocks the slot of its node after
// all other instances have ended, weighted by the size of the slot. The instance is in use for d seconds, beginning at
// start.
func (all nodeSlots) cost(p *Pool, k int, start, d float64) float64 {
	g := &p.gpus[k]
	if all == nil || g.Model.Full() == 0 {
		return 0
	}
	n := all[g.Node]
	return n.size * max(0, start+d-max(start, n.free))
}
