package slurm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedulable reports whether slurmctld starts jobs on a node in this state. A node that is completing counts as
// schedulable, although slurmctld starts no jobs there until the node has completed.
func (n Node) Schedulable() bool {
	return !slices.ContainsFunc([]string{"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG"}, n.Is)
}

// Accepts reports whether a job could run on the node if its slices were available there. See RejectReason.
func (n Node) Accepts(w Waiting) bool { return n.RejectReason(w) == "" }

// RejectReason returns the reason for which a job could not run on the node even if its slices were available there, or
// "" if it could. It compares the node's state, partition, node lists, features, GPU model, reservations, CPUs,
// sockets, cores, threads and temporary disk. It does not compare the node's memory: if a job requests all memory of a
// node, slurmctld may show the memory of another node as the request.
func (n Node) RejectReason(w Waiting) string {
	common := slices.ContainsFunc(w.Partitions(), func(p string) bool { return slices.Contains(n.Partitions, p) })
	switch {
	case !n.Schedulable():
		return "is " + strings.Join(n.States, "+")
	case !common:
		return "is not in " + w.Partition
	case slices.Contains(w.ExcNodes, n.Name):
		return "is excluded"
	case len(w.ReqNodes) > 0 && !slices.Contains(w.ReqNodes, n.Name):
		return "is not among the nodes that the job names"
	case n.lacksModel(w) != "":
		return "has no GPU of type " + n.lacksModel(w)
	case !n.reservedFor(w):
		return "is reserved for other jobs, or is not in the job's reservation"
	case n.CPUs > 0 && n.CPUs < n.cpus(w):
		return fmt.Sprintf("has %d CPUs, and the job needs %d", n.CPUs, n.cpus(w))
	}
	if why := w.Features.Lacking(n.Features, w.NumNodes); why != "" {
		return why
	}
	return n.tooSmall(w)
}

// tooSmall names the first hardware property of the node that is smaller than the job requests (job_req_node_filter in
// slurmctld), or returns "" if there is none.
func (n Node) tooSmall(w Waiting) string {
	for _, c := range []struct {
		unit      string
		has, asks int
		unknown   bool
	}{
		{"CPUs", n.CPUs, w.MinCPUs, n.CPUs == 0},
		{"sockets", n.Sockets, w.Sockets, n.Sockets == 0},
		{"cores per socket", n.CoresPerSocket, w.CoresPerSocket, n.CoresPerSocket == 0},
		{"threads per core", n.ThreadsPerCore, w.ThreadsPerCore, n.ThreadsPerCore == 0},
		{"MiB of temporary disk", n.TmpDisk, w.TmpDisk, false},
	} {
		if c.asks > c.has && !c.unknown {
			return fmt.Sprintf("has %d %s, and the job needs %d", c.has, c.unit, c.asks)
		}
	}
	return ""
}

// DeferReason returns the reason for which a job that the node accepts cannot start there now, even if its slices were
// available, or "" if it could. The reasons are a lack of CPUs or memory, and GRES in use if the job needs a whole
// node. A further reason is that the slices have been offered here since the time since, and slurmctld has evaluated
// the job later without starting it, for a cause that Caelum does not know. This reason does not apply to jobs that
// wait behind another job, or to jobs on several nodes, which may have lacked another node.
func (n Node) DeferReason(w Waiting, since time.Time) string {
	switch {
	case n.CPUs > 0 && n.CPUsFree < n.cpus(w):
		return fmt.Sprintf("has %d CPUs free, and the job needs %d", n.CPUsFree, n.cpus(w))
	case n.LacksGRES(w):
		return "has GRES in use by slurmctld's count, and the job needs a node without any (--exclusive)"
	case n.LacksMemory(w):
		return fmt.Sprintf("has %d MiB of memory free, and the job needs %d", n.MemoryFree, n.memory(w))
	case w.Reason == "Resources" && w.NumNodes <= 1 && w.HetJob == 0 && !n.Is("COMPLETING") && n.HasFree(w) &&
		w.LastSchedEval.Sub(since) > passedOver:
		return "has had the job's slices on offer, but slurmctld did not start the job there"
	}
	return ""
}

// lacksModel returns the first GPU type that the job requests and the node does not have, or "" if there is none.
func (n Node) lacksModel(w Waiting) string {
	for _, g := range slices.Concat(w.PerNode, w.PerJob, w.PerTask, w.PerSocket) {
		if g.Name == "gpu" && g.Type != "" &&
			!slices.ContainsFunc(n.Gres, func(has GRES) bool { return has.Name == "gpu" && has.Type == g.Type }) {
			return g.Type
		}
	}
	return ""
}

// reservedFor reports whether the node's reservations allow a job to run there.
func (n Node) reservedFor(w Waiting) bool {
	mine := strings.Split(w.Reservation, ",")
	if w.Reservation != "" {
		return slices.ContainsFunc(n.Reservations, func(r Reservation) bool { return slices.Contains(mine, r.Name) })
	}
	return !slices.ContainsFunc(n.Reservations, func(r Reservation) bool { return r.Whole })
}

// cpus returns the number of CPUs of the node that the job needs.
func (n Node) cpus(w Waiting) int {
	if w.Exclusive {
		return n.CPUs
	}
	nodes := max(w.NumNodes, 1)
	return (w.CPUs + nodes - 1) / nodes
}

// memory returns the memory of the node that the job needs, in MiB. It assumes that the job spreads its memory evenly
// over its nodes.
func (n Node) memory(w Waiting) int { return min(w.Memory/max(w.NumNodes, 1), n.Memory) }

// Share returns the node's CPUs and memory in MiB that the job needs. cpus is 0 if the node's CPUs are unknown.
func (n Node) Share(w Waiting) (cpus, memory int) {
	if n.CPUs > 0 {
		cpus = n.cpus(w)
	}
	return cpus, n.memory(w)
}

// LacksMemory reports whether the node has too little free memory for the job.
func (n Node) LacksMemory(w Waiting) bool { return n.MemoryFree < n.memory(w) }

// LacksGRES reports whether the job requests whole nodes and slurmctld counts GRES of this node as used, by any job or
// by none (gres_node_state_list_has_alloc_gres in _verify_node_state, 22.05.8).
func (n Node) LacksGRES(w Waiting) bool {
	return w.Exclusive && slices.ContainsFunc(n.GresUsed, func(g GRES) bool { return g.Count > 0 })
}

// passedOver is the minimum time between an offer and the evaluation of a job by slurmctld, for the agent to assume
// that slurmctld saw the offer. It is longer than a scheduling cycle and than the clock difference between two hosts.
const passedOver = 5 * time.Second

// Free returns the unused count of each type of a GRES on the node. An untyped GRES has the type "".
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

// HasFree reports whether all slices that the job needs on each of its nodes are free on this node.
func (n Node) HasFree(w Waiting) bool {
	free := n.Free("mig")
	for _, g := range w.SlicesPerNode() {
		if free[g.Type] < g.Count {
			return false
		}
	}
	return true
}
