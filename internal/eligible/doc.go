// Package eligible decides, from slurmctld's records, whether a waiting job could start and on which nodes, and when an
// agent releases a job that Caelum holds. Package eligible does not decide whether the job's slices fit on a node:
// package offer decides which jobs get slices, and package plan combines both decisions. Package slurm reads the
// records, and package tags interprets a job's admin_comment.
//
//	Accepts         whether a job could run on a node if the job's slices were available on the node
//	RejectReason    the reason why the job could not run on the node
//	DeferReason     the reason why a job cannot start now on a node that accepts the job
//	LacksFeatures   the reason why a node does not satisfy a job's --constraint
//	LacksLicense    the licence that a job lacks
//	WaitsForNodes   whether slurmctld would start the job if nodes and slices were available
//	Releasable      whether an agent may release a held job
//	InOrder         the order of the waiting jobs in the plan, including held jobs
//
// The package is pure: the functions convert records into decisions, without a clock or I/O. In the output of `caelum
// explain`, a reason follows the name of a node.
//
// Files:
//
//	node.go        the node: state, partitions, node lists, GPU model, reservations, CPUs, hardware
//	constraint.go  the node's features; the alternatives in brackets
//	defer.go       the CPUs, memory and GRES that the node lacks now; offers that slurmctld has not used (passedOver)
//	licenses.go    the licences of the cluster
//	waits.go       slurmctld's reasons for jobs that wait only for nodes or GRES
//	release.go     held jobs that an agent may release, and the earliest time (forgetting)
//	order.go       the position of held jobs among the other jobs (yield)
package eligible
