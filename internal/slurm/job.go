package slurm

import (
	"time"
)

// Job is slurmctld's record of a job. Unknown times are zero.
type Job struct {
	ID uint32
	// ArrayJob is the id of the array, or 0. ArrayTask is the index of a task. One Job with the id of the array and
	// several indices ("3-5,9") represents all pending tasks that slurmctld has not split off yet. The last of these
	// tasks keeps the id of the array.
	ArrayJob  uint32
	ArrayTask string
	// HetJob is the id of the first component, or 0.
	HetJob uint32
	// HetJobs contains the ids of all components of the het job, including components that have ended. HetJobs is empty
	// if the ids are unknown.
	HetJobs []uint32

	Name, User, Account, Partition, QOS string
	UID                                 uint32

	// State is the long form of squeue: PENDING, CONFIGURING, RUNNING, SUSPENDED, COMPLETING, ...
	State, Reason string
	Priority      uint64
	// Expedited is true if slurmctld starts this pending job before all other jobs. squeue shows the job's state as
	// EXPEDITING, and State is PENDING.
	Expedited bool
	// Restarts is the number of requeues. Restarts increases when the job is requeued, not when the job starts again.
	// If a requeue ends a run, the value in the epilog of this run is therefore one higher than the value in the prolog
	// of this run (22.05.8).
	Restarts int
	// Batch is true if the job was submitted with sbatch, Requeue if Slurm may requeue the job, and Exclusive if the
	// job requests whole nodes.
	Batch, Requeue, Exclusive bool
	// TimeLimit is 0 if the job has no time limit.
	TimeLimit                    time.Duration
	Submit, Eligible, Start, End time.Time

	// Nodes contains the nodes of the job. If the job is COMPLETING, these are only the nodes that are still
	// completing. NumNodes is the number of allocated or requested nodes.
	Nodes              []string
	NumNodes           int
	ReqNodes, ExcNodes []string

	Features                           Constraint
	Reservation, AdminComment, Comment string

	// These fields contain the minimum hardware that the job requests on each node, or 0. TmpDisk is in MiB.
	MinCPUs, TmpDisk                        int
	Sockets, CoresPerSocket, ThreadsPerCore int

	// These fields contain the requested GRES: PerNode for --gres and --gpus-per-node, PerJob for --gpus, PerTask for
	// --gpus-per-task, and PerSocket for --gpus-per-socket.
	PerNode, PerJob, PerTask, PerSocket GRESList
	// Tasks is the requested number of tasks, or 0 if the job requests no number of tasks.
	Tasks int
	// CPUs is the number of CPUs of the job on all nodes together. While the job is pending, CPUs is the requested
	// minimum.
	CPUs int
	// LastSchedEval is the time at which slurmctld last evaluated the job. slurmctld may have evaluated the job without
	// an attempt to start the job. While Reason is Priority, slurmctld may have skipped the job because of an earlier
	// job (22.05, _schedule).
	LastSchedEval time.Time
	// Dependency contains the unfulfilled dependencies as slurmctld prints them ("afterany:1(unfulfilled)"). While the
	// job is held, Reason does not show the dependencies.
	Dependency string
	// Nice is the job's nice value, which lowers the job's priority. For a held job, slurmctld shows the nice value,
	// but shows the priority as 0.
	Nice int64
	// Memory is the memory of the job on all nodes together, in MiB. While the job is pending, Memory is the requested
	// minimum. Memory is 0 if unknown.
	Memory int

	// Licenses contains the requested licences of the cluster as slurmctld prints them ("matlab:2,ansys:1").
	Licenses string

	// Problem is the reason why a field of the record could not be parsed. That field is then empty. slurmctld does not
	// check all requests. For example, slurmctld 22.05.8 stores `sbatch -H --gres='mig:x y(:1'` unchanged, although no
	// node can run such a job.
	Problem string

	// Allocated contains the GRES that are allocated to the job on each node. Allocated is nil if the job does not hold
	// its nodes, because slurmctld shows no allocation for a job that is COMPLETING or has ended.
	Allocated map[string]GRESList
}

// SlicesPerNode returns the gres/mig that the job requests on each of its nodes, in the order of the request. A request
// without a type has an empty Type.
func (j Job) SlicesPerNode() GRESList {
	var list GRESList
	for _, g := range j.PerNode {
		if g.Name == "mig" && g.Count > 0 {
			list = append(list, g)
		}
	}
	return list
}

// GPUsPerNode returns the number of GPUs that the job requests on each node. With --gpus and --gpus-per-task, the nodes
// may have different numbers of GPUs. In this case, the result is the mean, rounded up. When the job has started,
// Allocated contains the exact numbers.
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

// Holds reports whether slurmctld counts the GRES of a job in this state as used. Holds returns false for COMPLETING,
// because slurmctld stops counting the GRES when the job enters this state, before the job's epilog runs.
func (j Job) Holds() bool {
	switch j.State {
	case "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING":
		return true
	}
	return false
}

// Failed reports whether the batch script of a job has ended with an exit status other than 0, and the job's epilog has
// not ended on all nodes. Failed returns false for a job that a signal, a user or a limit has ended, and for a job that
// has been requeued and then held.
func (j Job) Failed() bool { return j.State == "COMPLETING" && j.Reason == "NonZeroExitCode" }

// Present reports whether the job may still be on its nodes. Present returns true for unknown states, so that no other
// job gets the slices of a job that may still be running.
func (j Job) Present() bool {
	switch j.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "RESV_DEL_HOLD",
		"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
		"OUT_OF_MEMORY":
		return false
	}
	return true
}
