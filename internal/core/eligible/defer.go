package eligible

import (
	"fmt"
	"slices"
	"time"

	"caelum/internal/slurm"
)

// DeferReason returns the reason why a job could not start now on a node that accepts it, even if its slices were
// available. The result is empty if the job could start. The node may lack free CPUs or memory or, if the job needs a
// whole node, its GRES may be in use. Alternatively, the node may have offered the slices since the given time, and
// slurmctld may have evaluated the job since then without starting it, for an unknown reason. The latter case does not
// apply to jobs that are waiting behind another job, to multi-node jobs, for which another node may have been
// unavailable, or to nodes that are powered down, because their Since field is the time of the agent's last change.
func DeferReason(n slurm.Node, w slurm.Waiting, since time.Time) string {
	switch {
	case n.CPUs > 0 && n.CPUsFree < needsCPUs(n, w):
		return fmt.Sprintf("has %d CPUs free, but the job needs %d", n.CPUsFree, needsCPUs(n, w))
	case LacksGRES(n, w):
		return "has GRES that slurmctld counts as used, but the job needs a node with no GRES in use (--exclusive)"
	case lacksMemory(n, w):
		return fmt.Sprintf("has %d MiB of memory free, but the job needs %d MiB", n.MemoryFree, needsMemory(n, w))
	case w.Reason == "Resources" && w.NumNodes <= 1 && w.HetJob == 0 && !n.Is("COMPLETING") && !n.Is("POWERED_DOWN") &&
		HasFree(n, w) && w.LastSchedEval.Sub(since) > passedOver:
		return "has offered the job's slices, but slurmctld has not started the job on the node"
	}
	return ""
}

// needsCPUs returns the number of CPUs that the job needs on the node.
func needsCPUs(n slurm.Node, w slurm.Waiting) int {
	if w.Exclusive {
		return n.CPUs
	}
	nodes := max(w.NumNodes, 1)
	return max((w.CPUs+nodes-1)/nodes, w.CPUsPerGPU*w.GPUsPerNode())
}

// needsMemory returns the memory, in MiB, that the job needs on the node, assuming that it needs the same amount on
// each of its nodes. With memory per GPU, slurmctld shows another value for a pending job.
func needsMemory(n slurm.Node, w slurm.Waiting) int {
	if m := w.MemoryPerGPU * w.GPUsPerNode(); m > 0 {
		return m
	}
	return min(w.Memory/max(w.NumNodes, 1), n.Memory)
}

// Share returns the number of CPUs and the memory, in MiB, that the job needs on the node. cpus is 0 if the node's
// number of CPUs is unknown.
func Share(n slurm.Node, w slurm.Waiting) (cpus, memory int) {
	if n.CPUs > 0 {
		cpus = needsCPUs(n, w)
	}
	return cpus, needsMemory(n, w)
}

// lacksMemory reports whether the node does not have enough free memory for the job.
func lacksMemory(n slurm.Node, w slurm.Waiting) bool { return n.MemoryFree < needsMemory(n, w) }

// LacksGRES reports whether the job requests whole nodes and slurmctld counts some of the node's GRES as used.
// slurmctld does not check whether any job actually holds the used GRES (gres_node_state_list_has_alloc_gres in
// _verify_node_state, 22.05.8).
func LacksGRES(n slurm.Node, w slurm.Waiting) bool {
	return w.Exclusive && slices.ContainsFunc(n.GresUsed, func(g slurm.GRES) bool { return g.Count > 0 })
}

// passedOver is the minimum time between an offer and slurmctld's evaluation of a job for Caelum to conclude that
// slurmctld considered the offer. It is longer than both a scheduling cycle and the usual clock difference between two
// hosts.
const passedOver = 5 * time.Second

// HasFree reports whether all slices that the job needs on each of its nodes are free on node n.
func HasFree(n slurm.Node, w slurm.Waiting) bool {
	free := n.Free("mig")
	for _, g := range w.SlicesPerNode() {
		if free[g.Type] < g.Count {
			return false
		}
	}
	return true
}
