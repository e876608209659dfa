// Package publish writes the node's offers to slurmctld. A pass reads the node's record, and the queue or the node's
// part of the watcher's plan, and computes the offers. It lowers the totals of the offers that the plan withdraws,
// checks that the plan is still valid, and raises the others. No pass counts a slice as both used and offered.
//
// Files:
//
//	publisher.go   the Publisher; when a pass runs: poll, pauses (settling, slowdown), and the shortest and the longest
//	               pause after a failed pass (RetryInterval, maxRetry)
//	backoff.go     Backoff: doubles the pauses before failed operations are repeated, between two limits of the caller
//	pass.go        one pass: plan, lower, check, raise (maxReplans)
//	nodeplan.go    computes this node's part of the cluster's plan
//	nextplan.go    the next jobs in the plan, to which a released slice is offered again without a pass
//	follow.go      reads this node and its part of the watcher's plan, if the heartbeat is fresh (relist); omits polls
//	               after a confirmation (Confirm)
//	frompart.go    converts the node's part of the watcher's plan to the plan of a pass
//	started.go     the jobs that slurmctld has started on this node and that have no lease yet
//	gres.go        writes counts and Extra ("published"); the GRES type closed; the age of node data (Fresh)
//	total.go       N, the constant total of gres/mig (learnTotal); CloseOffers
//	hide.go        hides profiles in use from slurmctld's backfill: totals of 0
//	excess.go      the slices that slurmctld counts as used although no job holds them; the totals to publish
//	advertised.go  profile names of other GPU models in the offers; profiles in slurm.conf that the driver lacks (stale)
//	heldjobs.go    releases held jobs whose slices are offered, and sets their profiles; holds components of het jobs
package publish
