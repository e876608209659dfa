// Package slurm reads and writes slurmctld through scontrol and squeue, and slurmdbd through sacct and sacctmgr.
//
// The package runs the commands with argument arrays, a fixed environment and a deadline, and never through a shell. It
// treats their output as hostile, because users write much of it: Slurm 22.05.8 stores a job's name, account, comment,
// network, wckey and paths exactly as the user wrote them, including newlines, and prints them without escaping. A job
// may be named
//
//	x
//	   JOB_GRES=mig:7g.40gb:9
//	     Nodes=n9 CPU_IDs=0 Mem=0 GRES=mig:7g.40gb:9
//
// and `scontrol show job` prints exactly that. Therefore:
//
//   - The properties of a job come from squeue. Each field ends with a separator that is random for each call
//     and passed in the environment (squeue's argv is world-readable). A user who writes a job's text cannot know the
//     separator, so no text can end a field. See record.go.
//   - The GRES that each node gave to a job are only in `scontrol -d show job`. Only that section is read, only for a
//     job that held its nodes before and after the request, and only if there is exactly one candidate. See alloc.go.
//
// squeue's field tres-alloc cannot replace this section: it contains gres/mig only if slurmdbd runs
// and AccountingStorageTRES lists gres/mig (without slurmdbd, slurmctld does not accept such a
// configuration).
//
// The package keeps no state, starts nothing in the background and makes no decisions. It imports no other package
// of Caelum. Package eligible decides on which nodes a job could run and when a held job is released, and package
// tags interprets admin_comment. Only accounting.go queries slurmdbd, which may be slow or unreachable for hours.
// No job ever waits for these queries.
//
// Files:
//
// Running the commands:
//
//	client.go        Options and Client; runs a command with its environment and time limit (DefaultTimeout 15 s)
//	once.go          runs an update that must not reach a slurmctld started later (connecting 0.9 s)
//	errors.go        the errors of the package, and the messages of Slurm's commands that mean them
//	release.go       what differs between releases of Slurm, in one place
//
// Reading slurmctld:
//
//	queue.go         the requests for the queue and for a job (jobTries 5); the jobs on a node (On)
//	job.go           Job; which states hold or occupy a node
//	waiting.go       Waiting: the pending jobs in slurmctld's order
//	constraint.go    parses --constraint (MaxFeatures 64)
//	record.go        the columns of squeue, the random separator, and joining the tasks of an array into one job
//	alloc.go         the GRES of a job on each node (`scontrol -d show job`); detects imitations in users' texts
//	node.go          a node: request, `scontrol -d show node`, valid names; a node whose slurmd has not registered
//	nodes.go         all nodes in one request, with their reservations
//	partitions.go    partitions, and which of them allocate whole nodes
//	reservations.go  active reservations, and which of them keep other jobs out
//	licenses.go      free licences
//	config.go        `scontrol show config`: version, slurmctld's hosts, SlurmUser, PrivateData, device cgroups
//
// Formats of values:
//
//	gres.go          GRES lists and TRES: reader, writer, valid names; the GRES type closed (ClosedType)
//	greslist.go      lists of GRES: totals, the counts of each profile, formatting
//	hostlist.go      expands hostlists such as n[1-3] (MaxHosts 65536)
//	values.go        times, time limits, numbers, memory sizes and null values
//
// Writing, and slurmdbd:
//
//	write.go         changes a node or a job: counts, requeue, hold, release, gres, comments; names one job (ref)
//	accounting.go    sacct and sacctmgr: records of runs, accounting fields, writing one (SetAccounting, ErrSpoils)
package slurm
