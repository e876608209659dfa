package slurm

import (
	"slices"
	"strings"
)

// Able reports whether slurmctld starts jobs on a node in this state. It starts none on a node that is completing either, but that passes.
func (n Node) Able() bool {
	return !slices.ContainsFunc([]string{"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG"}, n.Is)
}

// Serves reports whether a job could run on the node as far as names tell: partition, nodes, features, and the node's state.
func (n Node) Serves(w Waiting) bool {
	if !n.Able() {
		return false
	}
	common := slices.ContainsFunc(w.Partitions(), func(p string) bool { return slices.Contains(n.Partitions, p) })
	switch {
	case !common,
		slices.Contains(w.ExcNodes, n.Name),
		len(w.ReqNodes) > 0 && !slices.Contains(w.ReqNodes, n.Name):
		return false
	}
	// A plain feature is checked here; an expression with operators is left to slurmctld.
	if w.Features != "" && !strings.ContainsAny(w.Features, "&|*[](),") && !slices.Contains(n.Features, w.Features) {
		return false
	}
	return true
}

// Free is how much of each type of a GRES the node has that is not in use; of the untyped the type is empty.
func (n Node) Free(name string) map[string]int {
	free := map[string]int{}
	for _, g := range n.Gres {
		if g.Name == name {
			free[g.Type] += g.Count
		}
	}
	for _, g := range n.GresUsed {
		if g.Name == name {
			free[g.Type] -= g.Count
		}
	}
	return free
}

// Has reports whether the node has all slices free that the job needs on each of its nodes.
func (n Node) Has(w Waiting) bool {
	free := n.Free("mig")
	for _, g := range w.SlicesPerNode() {
		if free[g.Type] < g.Count {
			return false
		}
	}
	return true
}
