package slurm

import (
	"time"
)

// Job is slurmctld's record of a job. Unknown times are zero.
type Job struct {
	ID uint32
	// ArrayJob is the id of the array, or 0. ArrayTask is the index of a task. The pending tasks that slurmctld has
	// not split off yet form a single Job, with the array's id and several indices ("3-5,9"). The last of them keeps
	// the array's id.
	ArrayJob  uint32
	ArrayTask string
	// HetJob is the id of the first component, or 0.
	HetJob uint32
	// HetJobs lists the ids of all components of the het job, including those that have ended. It is empty if they
	// are unknown.
	HetJobs []uint32

	// Name is the beginning of a long name, and Comment holds only Caelum's tags of a long comment (shorten).
	Name, User, Account, Partition, QOS string
	UID                                 uint32

	// State is the state in squeue's long form: PENDING, CONFIGURING, RUNNING, SUSPENDED, COMPLETING, ...
	State, Reason string
	Priority      uint64
	// Expedited is true if slurmctld starts this pending job before all others. squeue then shows EXPEDITING, but State
	// is PENDING.
	Expedited bool
	// Restarts is the number of requeues. It increases at the requeue, not when the job restarts, so if a requeue
	// ends a run, the run's epilog sees a value one higher than its prolog did (22.05.8).
	Restarts int
	// Batch is true if the job was submitted with sbatch. Requeue is true if Slurm may requeue the job. Exclusive is
	// true if the job requests whole nodes.
	Batch, Requeue, Exclusive bool
	// TimeLimit is 0 if there is none. TimeMin is the value of --time-min, or 0.
	TimeLimit, TimeMin time.Duration
	// Deadline is the value of --deadline, or zero. See LatestStart.
	Deadline                     time.Time
	Submit, Eligible, Start, End time.Time

	// Nodes lists the job's nodes; while the job is COMPLETING, it lists only the nodes that are still completing.
	// NumNodes is the number of allocated or requested nodes.
	Nodes              []string
	NumNodes           int
	ReqNodes, ExcNodes []string

	Features                           Constraint
	Reservation, AdminComment, Comment string

	// The minimum hardware that the job requests on each node, or 0. TmpDisk is in MiB.
	MinCPUs, TmpDisk                        int
	Sockets, CoresPerSocket, ThreadsPerCore int
	// CPUsPerGPU and MemoryPerGPU are the values of --cpus-per-gpu and --mem-per-gpu (MiB), or of the partition's
	// DefCpuPerGPU and DefMemPerGPU, or 0. While the job is pending, CPUs and Memory do not include them.
	CPUsPerGPU, MemoryPerGPU int
	// CPUsPerTRES is the text that contains CPUsPerGPU.
	CPUsPerTRES string

	// The requested GRES: PerNode holds the values of --gres and --gpus-per-node, PerJob the value of --gpus, PerTask
	// the value of --gpus-per-task, and PerSocket the value of --gpus-per-socket.
	PerNode, PerJob, PerTask, PerSocket GRESList
	// Tasks is the requested number of tasks, or 0 if the job does not specify one.
	Tasks int
	// CPUs is the job's total number of CPUs over all nodes, or the requested minimum while it is pending.
	CPUs int
	// LastSchedEval is the time at which slurmctld last evaluated the job, possibly without trying to start it. While
	// Reason is Priority, slurmctld may have skipped the job because of an earlier job (22.05, _schedule).
	LastSchedEval time.Time
	// Dependency is the beginning of the unfulfilled dependencies as slurmctld prints them ("afterany:1(unfulfilled)"),
	// or empty if there are none. The Reason of a held job does not show them.
	Dependency string
	// Nice is the job's nice value, which lowers its priority. slurmctld shows the nice value even for a held job,
	// whose priority is shown as 0.
	Nice int64
	// Memory is the job's total memory over all nodes, or the requested minimum while it is pending, in MiB. It is 0
	// if unknown.
	Memory int

	// Licenses lists the cluster's licences that the job requests, as slurmctld prints them ("matlab:2,ansys:1").
	Licenses string

	// Problem is the reason why a field of the record could not be parsed. That field is then empty. This can happen
	// because slurmctld does not validate every part of a request: for example, 22.05.8 stores the request
	// `sbatch -H --gres='mig:x y(:1'` unchanged, even though no node can run that job.
	Problem string

	// Allocated is the GRES allocated to the job on each node. It is nil unless the job holds its nodes, because
	// slurmctld does not show an allocation for a job that is COMPLETING or has ended.
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

// GPUsPerNode returns the number of GPUs that the job requests on each node. With --gpus and --gpus-per-task, the
// number may vary between nodes; the result is then the mean, rounded up. Once the job has started, Allocated contains
// the exact numbers.
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

// Holds reports whether slurmctld counts the GRES of a job in this state as used. COMPLETING jobs do not hold any:
// slurmctld stops counting their GRES when they enter this state, before the epilog runs.
func (j Job) Holds() bool {
	switch j.State {
	case "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING":
		return true
	}
	return false
}

// Failed reports whether a job's batch script has ended with a non-zero exit status and its epilog has not yet ended on
// all nodes. It returns false for jobs that were ended by a signal, a user or a limit, and for jobs that were requeued
// and then held.
func (j Job) Failed() bool { return j.State == "COMPLETING" && j.Reason == "NonZeroExitCode" }

// Present reports whether the job may still be on its nodes. Unknown states count as present, so that no job is
// assigned slices that another job may still be using.
func (j Job) Present() bool {
	switch j.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "RESV_DEL_HOLD",
		"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
		"OUT_OF_MEMORY":
		return false
	}
	return true
}
