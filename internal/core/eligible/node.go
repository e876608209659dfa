package eligible

import (
	"fmt"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// Schedulable reports whether the node is in a state in which slurmctld starts jobs on it. This includes COMPLETING
// nodes, even though slurmctld does not start jobs there until they have finished completing, and powered-down nodes
// that are not allocated to any job, which slurmctld resumes for a job.
func Schedulable(n slurm.Node) bool {
	closed := []string{"DOWN", "DRAIN", "FAIL", "FUTURE", "NOT_RESPONDING", "INVALID_REG", "POWERING_DOWN"}
	return !slices.ContainsFunc(closed, n.Is) && (!n.Is("POWERED_DOWN") || n.Is("IDLE"))
}

// PoweredDown reports whether the node is powered down and would be resumed by slurmctld for a job.
func PoweredDown(n slurm.Node) bool { return n.Is("POWERED_DOWN") && Schedulable(n) }

// Accepts reports whether the job could run on the node if its slices were available there, that is, whether
// RejectReason returns an empty string.
func Accepts(n slurm.Node, w slurm.Waiting) bool { return RejectReason(n, w) == "" }

// RejectReason returns the reason why a job could not run on the node even if its slices were available there, or an
// empty string if it could run. The reason concerns the node's state, partition, node lists, features, GPU model,
// reservations, CPUs, sockets, cores, threads or temporary disk. Memory is ignored, because if a job requests all of a
// node's memory, slurmctld may show the memory size of another node as the request.
func RejectReason(n slurm.Node, w slurm.Waiting) string {
	common := slices.ContainsFunc(w.Partitions(), func(p string) bool { return slices.Contains(n.Partitions, p) })
	switch {
	case !Schedulable(n):
		return "is " + strings.Join(n.States, "+")
	case !common:
		return "is not in " + w.Partition
	case slices.Contains(w.ExcNodes, n.Name):
		return "is excluded"
	case len(w.ReqNodes) > 0 && !slices.Contains(w.ReqNodes, n.Name):
		return "is not among the nodes that the job requests"
	case lacksModel(n, w) != "":
		return "has no GPU of type " + lacksModel(n, w)
	case !reservedFor(n, w):
		return "is reserved for other jobs, or is not part of the job's reservation"
	case n.CPUs > 0 && n.CPUs < needsCPUs(n, w):
		return fmt.Sprintf("has %d CPUs, but the job needs %d", n.CPUs, needsCPUs(n, w))
	}
	if why := LacksFeatures(w.Features, n.Features, w.NumNodes); why != "" {
		return why
	}
	return tooSmall(n, w)
}

// tooSmall describes the first hardware resource of which the node has less than the job requests (job_req_node_filter
// in slurmctld). The result is empty if the node is large enough.
func tooSmall(n slurm.Node, w slurm.Waiting) string {
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
			return fmt.Sprintf("has %d %s, but the job needs %d", c.has, c.unit, c.asks)
		}
	}
	return ""
}

// lacksModel returns the first GPU type that the job requests but the node does not have, or an empty string.
func lacksModel(n slurm.Node, w slurm.Waiting) string {
	for _, g := range slices.Concat(w.PerNode, w.PerJob, w.PerTask, w.PerSocket) {
		if g.Name == "gpu" && g.Type != "" &&
			!slices.ContainsFunc(n.Gres, func(has slurm.GRES) bool { return has.Name == "gpu" && has.Type == g.Type }) {
			return g.Type
		}
	}
	return ""
}

// reservedFor reports whether the node's reservations allow the job to run there.
func reservedFor(n slurm.Node, w slurm.Waiting) bool {
	if w.Reservation != "" {
		names := strings.Split(w.Reservation, ",")
		of := func(r slurm.Reservation) bool { return slices.Contains(names, r.Name) }
		return slices.ContainsFunc(n.Reservations, of)
	}
	return !slices.ContainsFunc(n.Reservations, func(r slurm.Reservation) bool { return r.Whole })
}
