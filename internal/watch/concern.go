package watch

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// concern remembers who has been told of which job.
type concern struct {
	told map[uint32][]string // job -> nodes
	shut []string            // nodes with nothing on offer and nothing in use that have been told
}

// next is the nodes to tell now, each once; more says that others may have to be told a little later.
func (c *concern) next(nodes []slurm.Node, waiting []slurm.Waiting) (wake []slurm.Node, more bool) {
	told := map[uint32][]string{} // of those that still wait
	free := map[string]map[string]int{}
	var still []string
	for _, n := range nodes {
		free[n.Name] = n.Free("mig")
		if !shut(n) {
			continue
		}
		if still = append(still, n.Name); !slices.Contains(c.shut, n.Name) {
			wake = append(wake, n)
		}
	}
	c.shut = still
	for _, w := range waiting {
		wants := typed(w)
		if len(wants) == 0 || !w.Eligible() && !w.HeldByMark() {
			continue
		}
		told[w.ID] = c.told[w.ID]
		lacks := max(w.NumNodes, 1)
		var could []slurm.Node
		for _, n := range nodes {
			switch {
			case !n.Serves(w):
			case take(free[n.Name], wants):
				lacks--
			case !slices.Contains(told[w.ID], n.Name) && hasRoom(n, wants):
				could = append(could, n)
			}
			if lacks == 0 {
				break
			}
		}
		if lacks == 0 {
			continue
		}
		slices.SortFunc(could, func(a, b slurm.Node) int { return cmp.Compare(turn(w.ID, b.Name), turn(w.ID, a.Name)) })
		now := could[:min(lacks, len(could))]
		more = more || len(could) > len(now)
		for _, n := range now {
			told[w.ID] = append(told[w.ID], n.Name)
			if !slices.ContainsFunc(wake, func(o slurm.Node) bool { return o.Name == n.Name }) {
				wake = append(wake, n)
			}
		}
	}
	c.told = told
	return wake, more
}

// shut reports whether a node is as slurmctld has it after it has read slurm.conf: everything closed, what is in use as well. (A full node has
// on offer what is in use.) Nodes of the catalogue, which are down, are not.
func shut(n slurm.Node) bool {
	managed := false
	for _, g := range n.Gres {
		if g.Name == "mig" && g.Type != "closed" && g.Count > 0 {
			return false
		}
		managed = managed || g.Name == "mig"
	}
	return managed && !n.Is("DOWN")
}

// typed is what a job wants of slices on each of its nodes, by profile.
func typed(w slurm.Waiting) map[string]int {
	wants := map[string]int{}
	for _, g := range w.SlicesPerNode() {
		if g.Type != "" && g.Type != "closed" {
			wants[g.Type] += g.Count
		}
	}
	return wants
}

// take takes what is wanted out of what is free, if all of it is.
func take(free, wants map[string]int) bool {
	for profile, n := range wants {
		if free[profile] < n {
			return false
		}
	}
	for profile, n := range wants {
		free[profile] -= n
	}
	return true
}

// hasRoom reports whether as many slots and compute slices are free on a node as are wanted. A GPU has as many slots as compute slices; whether these
// are where they are needed only its agent knows.
func hasRoom(n slurm.Node, wants map[string]int) bool {
	managed, slots, busy := false, 0, 0
	for _, g := range n.Gres {
		switch g.Name {
		case "mig":
			managed = true
		case "gpu":
			slots += g.Count
		}
	}
	freeSlots := 0
	for _, count := range n.Free("gpu") {
		freeSlots += count
	}
	for _, g := range n.GresUsed {
		if g.Name == "mig" {
			busy += g.Count * compute(g.Type)
		}
	}
	count := 0
	for profile, n := range wants {
		count += n
		busy += n * compute(profile)
	}
	return managed && count <= freeSlots && busy <= slots
}

// compute is how many compute slices a profile has by its name: 3 for 3g.20gb; 0 if it does not say.
func compute(profile string) (n int) {
	digits, _, ok := strings.Cut(profile, "g.")
	if !ok || len(digits) != 1 || digits[0] < '0' || digits[0] > '9' {
		return 0
	}
	return int(digits[0] - '0')
}

// turn is a node's place in a job's order: the highest first.
func turn(job uint32, node string) uint64 {
	h := fnv.New64a()
	h.Write(binary.LittleEndian.AppendUint32(nil, job))
	h.Write([]byte(node))
	// FNV's high bits differ little between short texts that differ in their ends: stir (the finalizer of MurmurHash3).
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
