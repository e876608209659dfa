// Package plan makes the plan for the whole cluster from the queue and the nodes that slurmctld returns. A node's data
// includes the state of its GPUs, which its agent has published. Every agent, the watcher and `caelum explain` run this
// package on the same data, so they all make the same plan without exchanging messages, and there is no leader. Package
// publish carries out a node's part of the plan.
//
//	Text, Parse   the state of a node's GPUs, which the node's agent publishes in the node's Extra
//	Snapshot      the nodes and the queue, as slurmctld returned them
//	View          a snapshot converted for package offer: the GPUs of all nodes, and the waiting jobs
//	Planner       converts successive snapshots, and recomputes only the parts that depend on changed records
//	Explain       the reason why a job waits
//	Unresponsive  the nodes whose agents do not follow the plan
//	Unstarted     the jobs that slurmctld does not start although their slices are offered
//
// # When two plans differ
//
// Two agents that query slurmctld at different times can make different plans. Until one of them queries slurmctld
// again, a job's slices can be offered on two nodes, or on none. This can delay a job, but the same slice is never
// allocated to two jobs, because every node can carve all slices that it offers, regardless of the other nodes. An
// agent publishes every change of its node's state, and the watcher then notifies the agents whose offers differ from
// the plan.
//
// If an agent hangs or cannot reach slurmctld, the jobs that are planned on its node do not start. After some time
// ([Patience]), the other agents therefore exclude the node from their plans. A plan never includes a node on which
// slurmctld does not start jobs.
//
// The package is pure: its functions compute their results from their arguments alone, and none of them reads a clock.
// It caches descriptions of GPU models and never modifies slurmctld's data.
//
// # Files
//
//	snapshot.go      Snapshot; converts a waiting job (Job)
//	planner.go       Planner, New; the cluster of a view; forgets records that the last snapshot does not contain
//	known.go         a Planner's data about a node: the state of its GPUs, and the jobs on it
//	queue.go         a Planner's data about a waiting job; the waiting jobs that could start with their slices
//	request.go       a Planner's data about jobs with equal requests: the nodes on which they can run
//	verdicts.go      the nodes that accept a request, in little memory for many different requests
//	recent.go        the jobs that were submitted last: weights of profiles, mean duration, expected arrivals
//	view.go          View: the nodes and jobs of a snapshot for package offer; Plan, Counts
//	nodes.go         finds the nodes on which a job can run, and equivalent profiles
//	sizes.go         Settings of a site; larger profiles than a job requests (Sizes); profiles for speculative offers
//	feasible.go      excludes jobs that could never start (maxWants, maxKinds)
//	ends.go          computes when slices become free, from the queue, if nodes do not publish the times (PrivateData)
//	deadline.go      jobs that are not expected to meet their deadlines (Misses)
//	het.go           het jobs: finds components that slurmctld would start without the others (Stray)
//	elsewhere.go     held jobs that can use GPUs of nodes that Caelum does not manage (HeldElsewhere)
//	lacks.go         jobs that lack CPUs or memory: their expected start; the limit on reservations for a user
//	extra_state.go   the caelum= entry in Extra, which contains the state of a node's GPUs: format, version, Text
//	extra_parse.go   Parse, which reads the caelum= entry
//	extra_back.go    the caelum-back= entry in Extra: jobs that slurmctld did not start, for `caelum explain`
//	extra_nvlink.go  the caelum-nvlink= entry in Extra: the groups of GPUs that NVLinks connect
//	extra_jobs.go    the caelum-jobs= entry in Extra: the jobs that hold slices; preemptors in the plan
//	extra_settings.go  the caelum-plan= entry in Extra: the agent's policy and sizing, for comparisons
//	explain.go       `caelum explain`: Explain, the verdicts, the fields of an explanation
//	explain_job.go   explains jobs that have started, and jobs that lack resources other than slices, such as licences
//	explain_preempt.go  explains jobs that the watcher stops, and jobs for which it stops others
//	explain_plan.go  explains jobs that wait for slices, from the plan
//	unresponsive.go  nodes that do not publish the plan's offers, and the time after which plans exclude them (Patience)
//	unstarted.go     jobs that slurmctld does not start although their slices are offered (patience, backTime)
package plan
