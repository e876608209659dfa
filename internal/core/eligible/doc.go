// Package eligible decides, from slurmctld's records, whether a waiting job could start and on which nodes, and when an
// agent releases a job that Caelum holds. It does not decide whether the job's slices fit on a node: package offer
// decides which jobs are given slices, and package plan combines both decisions. Package slurm reads the records, and
// package tags interprets a job's admin_comment.
//
//	Accepts         whether a job could run on a node if its slices were available there
//	RejectReason    the reason why the job could not run on the node
//	DeferReason     the reason why a job cannot start now on a node that accepts it
//	LacksFeatures   the reason why a node does not satisfy a job's --constraint
//	LacksLicense    the licence that a job lacks
//	WaitsForNodes   whether slurmctld would start the job if nodes and slices were available
//	Releasable      whether an agent may release a held job
//	InOrder, Order  the order of the waiting jobs in the plan, including held jobs; it must be slurmctld's
//
// The package is pure: its functions turn records into decisions without using a clock or performing I/O. `caelum
// explain` prints each reason after the name of a node.
//
// Files:
//
//	node.go        the node: state, partitions, node lists, GPU model, reservations, CPUs, hardware
//	constraint.go  the node's features; the alternatives in brackets
//	defer.go       the CPUs, memory and GRES that the node lacks now; offers that slurmctld has not used (passedOver)
//	licenses.go    the cluster's licences
//	waits.go       the reasons that slurmctld shows for jobs that wait only for nodes or GRES
//	release.go     held jobs that an agent may release, and the earliest time (forgetting)
//	order.go       where held jobs rank among the other jobs (yield)
package eligible
