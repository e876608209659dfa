// Package offer decides which placements nodes offer: for each GPU, a set of free placements that forms a legal layout
// together with the busy placements. The node can therefore carve the slices of any jobs that slurmctld starts, in any
// order. docs/internals.md, "Rules for offers", describes for which jobs the placements are offered, and in which
// order.
//
//	Cluster      the GPUs of one node or of many, and the policy; Find places a job on them
//	Make         the plan: first the queue, then speculative offers
//	Reservation  the spots that are reserved for the first job that cannot start
//	Plan.Check   a check that the plan can be carved
//	Pack         searches for the placements of running jobs after a restart
//
// The package is pure: it takes values and returns a plan, without a clock or I/O. It never carves or publishes
// anything.
//
// Files:
//
//	job.go          Job, Want: what a waiting job needs; groups of jobs that start together (Components)
//	cluster.go      Cluster: the GPUs of all nodes; places a job on one or several nodes (Find)
//	het.go          places jobs that start together, each on separate nodes (FindAll, AssignNodes)
//	plan.go         Plan: offers, spots, reservation; Check; Pack
//	make.go         Make: the queue in its order, the head of the queue, the order in which slurmctld gives offers
//	backfill.go     places the jobs behind the head of the queue; limits (Depth 500, maxSearches 8)
//	lend.go         keeps spots for a job that lacks CPUs or memory, and lends them to other jobs
//	demand.go       profiles for which an earlier job waits, and which no later job is offered on the same node
//	size.go         larger slices than requested: Size, price, cost; both plans of Make (withSizes); Growable
//	reserve.go      reserves the earliest spots for the first job that cannot start; other jobs avoid these spots
//	speculation.go  offers for jobs that may be submitted next: which profiles, on which GPU and node
package offer
