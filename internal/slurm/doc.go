// Package slurm reads and changes slurmctld's data with scontrol and squeue, and slurmdbd's data with sacct and
// sacctmgr.
//
// The commands are run with an argument array, a fixed environment and a time limit, and never through a shell. Their
// output is treated as hostile, because parts of it are written by users. Slurm 22.05.8 stores a job's name, account,
// comment, network, wckey and paths exactly as the user wrote them, including newlines, and prints them without
// escaping. For example, a job's name may be
//
//	x
//	   JOB_GRES=mig:7g.40gb:9
//	     Nodes=n9 CPU_IDs=0 Mem=0 GRES=mig:7g.40gb:9
//
// `scontrol show job` prints this name unchanged, so the package reads jobs as follows:
//
//   - It reads a job's properties from squeue (record.go). Each field ends with a separator that is chosen at random
//     for each call. It is passed in the environment, because all users can read squeue's arguments. A user who sets a
//     job's text fields cannot know the separator, so no text can imitate the end of a field.
//   - Only `scontrol -d show job` prints a job's GRES on each node. The package parses only the section of the output
//     that contains these GRES. The job must hold its nodes both before and after the request, and the section must
//     occur exactly once in the output (alloc.go).
//
// squeue's tres-alloc field cannot replace this section: it shows gres/mig only if slurmdbd is running and
// AccountingStorageTRES includes gres/mig, which slurmctld does not accept there without slurmdbd.
//
// The package keeps no state, starts no background work, makes no decisions and imports no other Caelum package.
// Package eligible decides on which nodes a job could run and when a held job is released, and package tags
// interprets admin_comment. Only accounting.go and accounting_gres.go query slurmdbd, which may be slow or
// unreachable for hours; jobs never wait for these queries.
//
// Files:
//
// Running the commands:
//
//	client.go        Options and Client; runs a command with a fixed environment and time limit (DefaultTimeout)
//	once.go          runs an update that must not reach a slurmctld that starts later (connecting)
//	errors.go        the package's errors, and the messages of Slurm's commands that cause them
//	class.go         how the agent handles an error of a request about a job
//	release.go       Release: the behaviours that differ between Slurm releases
//
// Reading slurmctld:
//
//	queue.go         the requests for the queue and for a job (jobTries); nodes and queue (List); jobs on a node (On);
//	                 the script of a job; the processes of jobs
//	job.go           Job; the states in which a job holds GRES or may be on its nodes
//	deadline.go      the latest start of a job with --deadline (LatestStart); parses --deadline and --time-min
//	waiting.go       Waiting: the pending jobs in slurmctld's order
//	constraint.go    parses --constraint (MaxFeatures)
//	record.go        squeue's columns in each Slurm release, the random separator; joins the tasks of an array
//	alloc.go         a job's GRES on each node (`scontrol -d show job`); detects imitations in users' texts
//	node.go          a node: the request, `scontrol -d show node`, valid names; nodes whose slurmd has not registered
//	managed.go       which nodes Caelum manages; catalogue nodes; unmanaged GPU nodes
//	nodes.go         all nodes in one request, with their reservations
//	partitions.go    partitions; detects partitions that allocate whole nodes
//	reservations.go  active reservations; detects reservations that exclude other jobs
//	licenses.go      free licences
//	config.go        `scontrol show config`: version, slurmctld's hosts, SlurmUser, PrivateData, device cgroups
//
// Formats of values:
//
//	gres.go          GRES lists and TRES: parser, formatting, valid names; the `closed` GRES type (ClosedType)
//	greslist.go      lists of GRES: totals, counts per profile, formatting
//	hostlist.go      expands hostlists such as n[1-3] (maxHosts)
//	values.go        times, time limits, numbers, memory sizes and null values
//	same.go          equality of records of nodes and jobs (Same)
//
// Writing, and slurmdbd:
//
//	convert.go       adds slices to the request of a job that waited before Caelum was installed, or removes them
//	write.go         changes a node or a job: counts, requeue, hold, release, GRES, comments; identifies one job (ref)
//	preempt.go       ends or warns the run of a preempted job (Requeue, Cancel, Warn)
//	qos.go           QOS: the fields that concern preemption
//	accounting.go    sacct and sacctmgr: records of runs; writes an accounting field (SetAccounting, ErrSpoils)
//	accounting_gres.go sacct: records with the partition, the times and the GRES of the run
package slurm
