package place

// nodeSlots contains one slot for each node. A job with several full GPUs needs GPUs of one node that are free at the
// same time, but a slot of a single GPU does not describe such a job. Policies that use expected ends therefore treat
// all GPUs of a node that may be full as one more slot, which an instance on any of these GPUs blocks. The node of a
// GPU is GPU.Node.
type nodeSlots []nodeSlot

type nodeSlot struct {
	size float64 // units
	free float64 // the time F of the slot, in seconds: all instances on the node will have ended
}

// nodeSlots returns the slots of the nodes, or nil if no GPU may be full.
func (p *Pool) nodeSlots() (all nodeSlots) {
	for k := range p.gpus {
		g := &p.gpus[k]
		if g.Model == nil || g.Model.Full() == 0 {
			continue
		}
		for len(all) <= g.Node {
			all = append(all, nodeSlot{})
		}
		n := &all[g.Node]
		n.size += float64(g.Model.Grid)
		for full := range g.Model.Full().Indices() {
			n.free = max(n.free, g.free[full])
		}
	}
	return all
}

// cost returns the time in seconds for which an instance on the k-th GPU blocks the slot of the GPU's node longer than
// the other instances do, weighted with the size of the slot. The instance runs from start for d seconds.
func (all nodeSlots) cost(p *Pool, k int, start, d float64) float64 {
	g := &p.gpus[k]
	if all == nil || g.Model.Full() == 0 {
		return 0
	}
	n := all[g.Node]
	return n.size * max(0, start+d-max(start, n.free))
}
