// Package offer decides what nodes publish: for each GPU a set of free placements that forms a legal layout together
// with the busy ones. The node can therefore carve whatever slurmctld starts, in any order. docs/internals.md, "Rules
// for offers", describes which jobs the placements are meant for, and in what order.
//
//	Cluster      the GPUs of one node or of many, and the policy; Find places a job on them
//	Make         the plan: first the queue, then speculative offers
//	Reservation  the room that is reserved for the first job that cannot start
//	Plan.Check   a check that the plan can be carved
//	Pack         a search for the placements of running jobs, after a restart
//
// The package is pure: values in, a plan out; no clock, no I/O. It never carves or publishes anything.
//
// Files:
//
//	job.go          Job, Want: what a waiting job needs; groups of jobs that start together (Components)
//	cluster.go      Cluster: the GPUs of all nodes; places a job on one or several nodes (Find)
//	het.go          places jobs that start together, each on nodes of its own (FindAll, AssignNodes)
//	plan.go         Plan: offers, spots, reservation; Check; Pack
//	make.go         Make: the queue in its order, the head of the queue, the order in which slurmctld gives offers
//	backfill.go     the jobs behind the head of the queue; limits (Depth 500, maxSearches 8)
//	lend.go         room that is kept, offered and lent for a job that lacks CPUs or memory
//	demand.go       profiles for which an earlier job waits: they are offered to no later job on the same node
//	reserve.go      the reservation for the first job that cannot start: earliest room; other jobs avoid it
//	speculation.go  offers for jobs that are submitted next: which profiles, on which GPU and node
package offer
