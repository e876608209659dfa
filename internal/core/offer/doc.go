// Package offer decides which placements the nodes offer. The offers of a GPU are free placements that form a legal
// layout together with the busy placements, so the node can carve the slices for any jobs that slurmctld starts, in any
// order. The section "Rules for offers" in docs/internals/placement.md explains for which jobs placements are offered,
// and in which order.
//
//	Cluster      the GPUs of one or more nodes, and the policy; Cluster.Find places a job on the GPUs
//	Make         makes the plan: first for the queue, then speculative offers
//	Reservation  the spots that are reserved for the first job that cannot start
//	Plan.Check   checks that all offers of a plan can be carved together
//	Pack         searches for the placements of running jobs after a restart
//
// The package is pure: it computes a plan from values, without a clock or I/O. It never carves or publishes slices.
//
// Files:
//
//	job.go          Job and Want: the requirements of a waiting job; groups of jobs that start together (Components)
//	cluster.go      Cluster: the GPUs of all nodes; places a job on one or several nodes (Find)
//	het.go          places jobs that start together, each on separate nodes (FindAll, AssignNodes)
//	plan.go         Plan: offers, spots, reservation; Check; Pack
//	make.go         Make: places the jobs in queue order; the order in which slurmctld allocates the offers
//	backfill.go     places jobs behind the head of the queue; limits (Depth, maxSearches)
//	lend.go         keeps spots for a job that lacks CPUs or memory, and lends them to other jobs
//	deadline.go     jobs that must start soon to meet their deadlines: order, sizes and holds
//	demand.go       the profiles for which earlier jobs wait, so that later jobs are not placed on the same nodes
//	quota.go        limits the number of full GPUs while jobs wait for slices (WholeShare)
//	nvlink.go       chooses full GPUs that NVLinks connect, and keeps connected GPUs free
//	size.go         larger slices than requested: Size, price, cost; the second plan of Make; Growable
//	arrivals.go     the number of jobs that are expected to be submitted during a mean run (ExpectedArrivals)
//	reserve.go      reserves the earliest spots for the first job that cannot start
//	speculation.go  chooses the profiles, GPUs and nodes of the offers for jobs that may be submitted later
package offer
