package slurm

import (
	"time"
)

// Job is slurmctld's record of a job. Unknown times are zero.
type Job struct {
	ID uint32
	// ArrayJob is the array's id, or 0. ArrayTask is a task's index. One Job represents all pending tasks that
	// slurmctld has not split off yet. It has the array's own id and several indices ("3-5,9"). The last of these
	// tasks keeps the array's id.
	ArrayJob  uint32
	ArrayTask string
	// HetJob is the first component's id, or 0.
	HetJob uint32
	// HetJobs contains the ids of all components of a heterogeneous job, including those that
	// have ended. It is empty if the ids are unknown.
	HetJobs []uint32

	Name, User, Account, Partition, QOS string
	UID                                 uint32

	// State is squeue's long form: PENDING, CONFIGURING, RUNNING, SUSPENDED, COMPLETING, ...
	State, Reason string
	Priority      uint64
	// Restarts counts requeues. It increases when the job is requeued, not when the job starts again. If a requeue ends
	// a run, the value in the run's epilog is therefore one higher than in its prolog (22.05.8).
	Restarts int
	// Batch is set if the job was submitted with sbatch, Requeue if Slurm may requeue the job,
	// and Exclusive if the job requests whole nodes.
	Batch, Requeue, Exclusive bool
	// TimeLimit is 0 if the job has no time limit.
	TimeLimit                    time.Duration
	Submit, Eligible, Start, End time.Time

	// Nodes contains the job's nodes. For a COMPLETING job, it contains the nodes that are
	// still completing. NumNodes is the number of allocated or requested nodes.
	Nodes              []string
	NumNodes           int
	ReqNodes, ExcNodes []string

	Features                           Constraint
	Reservation, AdminComment, Comment string

	// These fields are the requested minimum of each node's hardware, or 0 if not requested. TmpDisk is in MiB.
	MinCPUs, TmpDisk                        int
	Sockets, CoresPerSocket, ThreadsPerCore int

	// These fields contain the GRES requested with --gres and --gpus-per-node, --gpus, --gpus-per-task, and
	// --gpus-per-socket.
	PerNode, PerJob, PerTask, PerSocket GRESList
	// Tasks is 0 if not set.
	Tasks int
	// CPUs is the number of CPUs that the job has on all its nodes together, or the minimum number that it requests.
	CPUs int
	// LastSchedEval is the time at which slurmctld last evaluated the job. slurmctld may not have tried to start the
	// job: while Reason is Priority, slurmctld may have skipped the job because of an earlier job (22.05, _schedule).
	LastSchedEval time.Time
	// Dependency contains the unfulfilled dependencies in slurmctld's form ("afterany:1(unfulfilled)"). Reason does not
	// show them while the job is held.
	Dependency string
	// Nice is the job's nice value, which lowers its priority. slurmctld shows it also for a held job, whose priority
	// it shows as 0.
	Nice int64
	// Memory is the memory in MiB that the job has on all its nodes together, or the minimum that it requests. It is 0
	// if unknown.
	Memory int

	// Licenses contains the requested licences of the cluster in slurmctld's form
	// ("matlab:2,ansys:1").
	Licenses string

	// Problem is the reason why a part of the record could not be read. In this case, that part is empty. slurmctld
	// does not check all requests. For example, 22.05.8 stores `sbatch -H --gres='mig:x y(:1'` unchanged, although
	// no node can run such a job.
	Problem string

	// Allocated maps each node to the GRES allocated to the job there. It is nil unless the job holds its nodes: from
	// COMPLETING on, slurmctld shows no allocation.
	Allocated map[string]GRESList
}

// SlicesPerNode returns the gres/mig that the job requests on each of its nodes, in the order written. An untyped
// request has an empty Type.
func (j Job) SlicesPerNode() GRESList {
	var list GRESList
	for _, g := range j.PerNode {
		if g.Name == "mig" && g.Count > 0 {
			list = append(list, g)
		}
	}
	return list
}

// GPUsPerNode returns the number of GPUs that the job requests on a node. --gpus and --gpus-per-task may give the nodes
// different numbers; the result is then the mean, rounded up. Allocated has the exact numbers once the job has started.
func (j Job) GPUsPerNode() int {
	if n := j.PerNode.Total("gpu"); n > 0 {
		return n
	}
	nodes := max(j.NumNodes, 1)
	total := j.PerJob.Total("gpu")
	if total == 0 {
		total = j.PerTask.Total("gpu") * max(j.Tasks, 1)
	}
	if total == 0 {
		return j.PerSocket.Total("gpu")
	}
	return (total + nodes - 1) / nodes
}

// Holds reports whether slurmctld counts the GRES of a job in this state as used. It returns false
// for COMPLETING, because slurmctld stops counting them when the job enters this state, before its
// epilog.
func (j Job) Holds() bool {
	switch j.State {
	case "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING":
		return true
	}
	return false
}

// Present reports whether the job may still be on its nodes. It returns true for unknown states, so that slices of a
// job that may still run are never given to another job.
func (j Job) Present() bool {
	switch j.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "RESV_DEL_HOLD",
		"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
		"OUT_OF_MEMORY":
		return false
	}
	return true
}
