package slurm

import (
	"cmp"
	"strconv"
	"time"
)

// Job is a job as slurmctld has it. Times that are not known are zero.
type Job struct {
	ID uint32
	// ArrayJob is the array's id, or 0. ArrayTask is a task's index; the pending tasks that slurmctld has not split
	// off yet are one Job, with the array's own id, which the last of them keeps ("3-5,9").
	ArrayJob  uint32
	ArrayTask string
	// HetJob is the first component's id, or 0.
	HetJob uint32
	// HetJobs are the ids of all components that were submitted as one het job, also of those that have ended. Empty:
	// unknown.
	HetJobs []uint32

	Name, User, Account, Partition, QOS string
	UID                                 uint32

	// State is squeue's long form: PENDING, CONFIGURING, RUNNING, SUSPENDED, COMPLETING, ...
	State, Reason string
	Priority      uint64
	// Restarts counts requeues. It rises when the job is requeued, not when it starts again: in the epilog of
	// the run that a requeue ends it is already one more than it was in that run's prolog (22.05.8).
	Restarts int
	// Batch: submitted by sbatch. Requeue: Slurm may requeue it. Exclusive: asked for whole nodes.
	Batch, Requeue, Exclusive bool
	// TimeLimit is 0 if there is none.
	TimeLimit                    time.Duration
	Submit, Eligible, Start, End time.Time

	// Nodes holds the nodes, for a COMPLETING job those still completing; NumNodes what is allocated or asked for.
	Nodes              []string
	NumNodes           int
	ReqNodes, ExcNodes []string

	Features                           Constraint
	Reservation, AdminComment, Comment string

	// What each node must have at least; 0: not asked for. TmpDisk is in MiB.
	MinCPUs, TmpDisk                        int
	Sockets, CoresPerSocket, ThreadsPerCore int

	// What was requested, by --gres and --gpus-per-node, --gpus, --gpus-per-task, --gpus-per-socket.
	PerNode, PerJob, PerTask, PerSocket []GRES
	// Tasks is 0 if not set.
	Tasks int
	// CPUs is how many it has, or asks for at least, on all its nodes.
	CPUs int
	// LastSchedEval is when slurmctld last came to the job in its queue. It need not have tried to start it: while
	// Reason is Priority it may have left it for somebody in front (22.05, _schedule).
	LastSchedEval time.Time
	// Dependency is what the job still waits for, as slurmctld writes it ("afterany:1(unfulfilled)"), empty once
	// nothing is left. Reason does not show it while the job is held.
	Dependency string
	// Nice is what the user or an admin has taken off the job's priority. It can be seen while the job is held, the
	// priority cannot.
	Nice int64
	// Memory is how much it has, or asks for at least, on all its nodes, in MiB. 0: unknown.
	Memory int

	// Licenses is what the job asks for of the cluster's licences, as slurmctld writes it ("matlab:2,ansys:1").
	Licenses string

	// Problem says why a part of the record could not be read; that part is empty then. It happens to what nobody has
	// checked: 22.05.8 stores `sbatch -H --gres='mig:x y(:1'` as it stands. Such a job can be served by no node.
	Problem string

	// Allocated holds what each node gave to the job. It is nil unless the job holds its nodes: from COMPLETING on,
	// slurmctld shows none.
	Allocated map[string][]GRES
}

// SlicesPerNode is what the job requested of gres/mig on each of its nodes, in the order written. An untyped request
// has an empty Type.
func (j Job) SlicesPerNode() []GRES {
	var list []GRES
	for _, g := range j.PerNode {
		if g.Name == "mig" && g.Count > 0 {
			list = append(list, g)
		}
	}
	return list
}

// GPUsPerNode is how many GPUs the job requested on a node. --gpus and --gpus-per-task may fall unequally; then it is
// the mean, rounded up, and Allocated tells the truth once the job has started.
func (j Job) GPUsPerNode() int {
	if n := gpus(j.PerNode); n > 0 {
		return n
	}
	nodes := max(j.NumNodes, 1)
	total := gpus(j.PerJob)
	if total == 0 {
		total = gpus(j.PerTask) * max(j.Tasks, 1)
	}
	if total == 0 {
		return gpus(j.PerSocket)
	}
	return (total + nodes - 1) / nodes
}

func gpus(list []GRES) int {
	n := 0
	for _, g := range list {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// Holds reports whether a job in this state has GRES of its nodes in slurmctld's "used". COMPLETING has not: used
// drops when a job enters it, before its epilog.
func (j Job) Holds() bool {
	switch j.State {
	case "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING":
		return true
	}
	return false
}

// Present reports whether the job may still be on its nodes. A state that is not known here counts: what is thought
// to be there is never given away.
func (j Job) Present() bool {
	switch j.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "RESV_DEL_HOLD",
		"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY":
		return false
	}
	return true
}

// Learned is how long earlier runs say that the job will run, at most its time limit; 0: nothing.
func (j Job) Learned() time.Duration {
	seconds, err := strconv.ParseUint(TagValue(j.AdminComment, TagRuns), 10, 31)
	if err != nil {
		return 0
	}
	learned := time.Duration(seconds) * time.Second
	if j.TimeLimit > 0 {
		return min(learned, j.TimeLimit)
	}
	return learned
}

// Expected is how long the job is expected to run: what was learned, else its time limit; 0: nobody knows.
func (j Job) Expected() time.Duration { return cmp.Or(j.Learned(), j.TimeLimit) }

// ExpectedEnd is when a running job is expected to end: by its earlier runs, else, and if it has run for longer than
// they did, at its time limit. Zero: it has none.
func (j Job) ExpectedEnd(now time.Time) time.Time {
	if end := j.Start.Add(j.Learned()); end.After(now) && !j.Start.IsZero() && j.Learned() > 0 {
		return end
	}
	return j.End
}
