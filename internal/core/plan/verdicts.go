package plan

import "encoding/binary"

// A Planner keeps the results of package eligible for each node and request. The number of different requests is
// limited only by the number of jobs that slurmctld accepts. To save memory, a result takes only two bits, and requests
// with equal sets of nodes share the sets.

// bits is a set of small numbers.
type bits []uint64

func (b bits) has(k int) bool { return k/64 < len(b) && b[k/64]>>(k%64)&1 != 0 }

func (b *bits) set(k int, value bool) {
	for len(*b) <= k/64 {
		*b = append(*b, 0)
	}
	if (*b)[k/64] &^= 1 << (k % 64); value {
		(*b)[k/64] |= 1 << (k % 64)
	}
}

// verdicts holds the results of package eligible for a request on the members of a view, by known.slot.
type verdicts struct {
	stamp             uint64 // Planner.stamps at the time of the view; a node that has changed since has a higher stamp
	members           bits   // shared by all requests of the view
	accepts, deferred bits
}

// knows reports whether the verdict on a node is valid.
func (d *verdicts) knows(n *known) bool { return n.stamp <= d.stamp && d.members.has(n.slot) }

// sharedSets maps the text form of each set of members to the set. It is shared by all requests in a view.
type sharedSets map[string][]int

// of returns a list equal to members, which must be in ascending order. Equal sets share a single list.
func (s sharedSets) of(members []int) []int {
	if len(members) == 0 {
		return members
	}
	var in bits
	for _, k := range members {
		in.set(k, true)
	}
	text := make([]byte, 0, 8*len(in))
	for _, word := range in {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	list, known := s[string(text)]
	if !known {
		list = append(make([]int, 0, len(members)), members...)
		s[string(text)] = list
	}
	return list
}
