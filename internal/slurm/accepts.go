package slurm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedulable reports whether slurmctld starts jobs on a node in this state. It starts none on a node that is
// completing either, but that passes.
func (n Node) Schedulable() bool {
	return !slices.ContainsFunc([]string{"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG"}, n.Is)
}

// Accepts reports whether a job could run on the node but for its slices, as far as can be seen: see Refuses.
func (n Node) Accepts(w Waiting) bool { return n.RejectReason(w) == "" }

// RejectReason says why a job could not run on the node even if it had its slices, empty if it could: the node's state,
// partition, node lists, features, GPU model, reservations, CPUs, sockets, cores, threads, temporary disk. (How much
// memory a node has is left to slurmctld: of a job that asks for all of a node's, it shows that of another node.)
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
		return "is not among the nodes that it names"
	case n.lacksModel(w) != "":
		return "has no GPU of type " + n.lacksModel(w)
	case !n.reservedFor(w):
		return "is reserved for others, or not in its reservation"
	case n.CPUs > 0 && n.CPUs < n.cpus(w):
		return fmt.Sprintf("has %d CPUs, and it needs %d", n.CPUs, n.cpus(w))
	}
	if why := w.Features.Lacking(n.Features, w.NumNodes); why != "" {
		return why
	}
	return n.tooSmall(w)
}

// tooSmall says what of the node's hardware is less than the job asks for (job_req_node_filter in slurmctld); empty if
// nothing is.
func (n Node) tooSmall(w Waiting) string {
	for _, c := range []struct {
		what      string
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
			return fmt.Sprintf("has %d %s, and the job needs %d", c.has, c.what, c.asks)
		}
	}
	return ""
}

// DeferReason says why a job that the node does not refuse cannot start there now even if it had its slices, empty if
// it could: no CPUs, no memory, GRES in use where it needs a whole node, or something that cannot be seen, as slurmctld
// has looked at the job when its slices had been on offer here since a while ago, and has not started it. (It does not
// say so of jobs that it left for somebody in front, and one that needs several nodes may have lacked another.)
func (n Node) DeferReason(w Waiting, since time.Time) string {
	switch {
	case n.CPUs > 0 && n.CPUsFree < n.cpus(w):
		return fmt.Sprintf("has %d CPUs free, and it needs %d", n.CPUsFree, n.cpus(w))
	case n.LacksGRES(w):
		return "has GRES in use by slurmctld's count, and it needs a node without any (--exclusive)"
	case n.LacksMemory(w):
		return fmt.Sprintf("has %d MiB of memory free, and it needs %d", n.MemoryFree, n.memory(w))
	case w.Reason == "Resources" && w.NumNodes <= 1 && w.HetJob == 0 && !n.Is("COMPLETING") && n.HasFree(w) && w.LastSchedEval.Sub(since) > passedOver:
		return "has had it on offer, and slurmctld did not start it there"
	}
	return ""
}

// lacksModel is the first type of GPU that the job names and the node has not, empty if there is none.
func (n Node) lacksModel(w Waiting) string {
	for _, g := range slices.Concat(w.PerNode, w.PerJob, w.PerTask, w.PerSocket) {
		if g.Name == "gpu" && g.Type != "" &&
			!slices.ContainsFunc(n.Gres, func(has GRES) bool { return has.Name == "gpu" && has.Type == g.Type }) {
			return g.Type
		}
	}
	return ""
}

// reservedFor reports whether the node's reservations let a job run there.
func (n Node) reservedFor(w Waiting) bool {
	mine := strings.Split(w.Reservation, ",")
	if w.Reservation != "" {
		return slices.ContainsFunc(n.Reservations, func(r Reservation) bool { return slices.Contains(mine, r.Name) })
	}
	return !slices.ContainsFunc(n.Reservations, func(r Reservation) bool { return r.Whole })
}

// cpus is how many CPUs of the node the job needs.
func (n Node) cpus(w Waiting) int {
	if w.Exclusive {
		return n.CPUs
	}
	nodes := max(w.NumNodes, 1)
	return (w.CPUs + nodes - 1) / nodes
}

// memory is how much of the node's memory the job needs, in MiB. Over several nodes it is taken to be spread evenly.
func (n Node) memory(w Waiting) int { return min(w.Memory/max(w.NumNodes, 1), n.Memory) }

// Share returns how many of the node's CPUs and how much of its memory, in MiB, the job needs. CPUs are 0 where the
// node's are unknown.
func (n Node) Share(w Waiting) (cpus, memory int) {
	if n.CPUs > 0 {
		cpus = n.cpus(w)
	}
	return cpus, n.memory(w)
}

// LacksMemory reports whether other jobs have so much of the node's memory that the job cannot start there now.
func (n Node) LacksMemory(w Waiting) bool { return n.MemoryFree < n.memory(w) }

// LacksGRES reports whether the job asks for whole nodes and slurmctld counts GRES of this one as used, by whatever job
// or by none (gres_node_state_list_has_alloc_gres in _verify_node_state, 22.05.8).
func (n Node) LacksGRES(w Waiting) bool {
	return w.Exclusive && slices.ContainsFunc(n.GresUsed, func(g GRES) bool { return g.Count > 0 })
}

// passedOver is more than the clocks of two hosts differ and a scheduling cycle takes.
const passedOver = 5 * time.Second

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

// HasFree reports whether the node has all slices free that the job needs on each of its nodes.
func (n Node) HasFree(w Waiting) bool {
	free := n.Free("mig")
	for _, g := range w.SlicesPerNode() {
		if free[g.Type] < g.Count {
			return false
		}
	}
	return true
}
