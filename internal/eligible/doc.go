// Package eligible decides from slurmctld's records whether a waiting job could start, on which nodes, and when an
// agent releases a job that Caelum holds. Whether the job's slices fit on a node is not considered: package offer
// decides which jobs get slices, and package plan combines both. Package slurm reads the records, and package tags
// interprets a job's admin_comment.
//
//	Accepts         whether a job could run on a node if its slices were available there
//	RejectReason    why it could not
//	DeferReason     why a job that the node accepts cannot start there now
//	LacksFeatures   why a node does not meet a job's --constraint
//	LacksLicense    the licence that a job lacks
//	WaitsForNodes   whether slurmctld would start the job if it had nodes and slices
//	Releasable      whether an agent may release a held job
//	InOrder         the order in which the plan serves the waiting jobs, including held ones
//
// The package is pure: its functions take records and return decisions, without a clock or I/O. The reasons that it
// returns continue the text "NODE ..." in `caelum explain`.
//
// Files:
//
//	node.go        the node: state, partitions, node lists, GPU model, reservations, CPUs, hardware
//	constraint.go  the node's features; the alternatives in brackets
//	defer.go       what the node lacks now: CPUs, memory, GRES; offers that slurmctld passed over (passedOver 5 s)
//	licenses.go    the licences of the cluster
//	waits.go       the reasons of slurmctld with which a job waits only for nodes or GRES
//	release.go     held jobs that an agent may release, and from when on (forgetting 3 s)
//	order.go       the position of held jobs among the other jobs (yield 1 h)
package eligible
