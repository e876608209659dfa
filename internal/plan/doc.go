// Package plan makes the plan for the whole cluster from data that slurmctld returns: the queue and the nodes,
// including the GPU states that the agents have published. Every agent, the watcher and `caelum explain` run this code
// on the same data. They therefore agree without exchanging messages, and no node is a leader. Package agent decides
// how a node carries out its part of the plan.
//
//	Text, Parse   the state of a node's GPUs, as its agent writes it into the node's Extra
//	Snapshot      the nodes and the queue, as slurmctld returned them
//	View          a snapshot converted for package offer: the GPUs of all nodes, and the waiting jobs
//	Explain       why a job waits
//	Unresponsive  the nodes that do not follow the plan
//	Unstarted     the jobs that slurmctld does not start although their slices are offered
//
// # When two plans differ
//
// Two agents that read slurmctld at different times may make different plans. The slices of a job may then be offered
// on two nodes, or on no node, until one of the two agents reads slurmctld again. This can delay a job, but never
// causes a conflict over a slice, because a node can carve all slices that it offers, independently of other nodes. An
// agent publishes every change of its node's state. The watcher then notifies the agents whose offers differ from the
// plan.
//
// An agent that hangs or cannot reach slurmctld does not follow the plan. Jobs that are planned on its node never
// start, so the other agents leave the node out of their plans after a while ([Unresponsive]). A plan never includes
// nodes on which slurmctld starts no jobs.
//
// Except for Read and a cache of GPU models, the package is pure: its functions take values and return values, without
// a clock or I/O. It never changes anything in slurmctld.
//
// # Files
//
//	snapshot.go      Snapshot, Read; the waiting jobs that could start if they had their slices
//	view.go          View: the nodes and jobs of a snapshot for package offer; Plan, Counts
//	nodes.go         finds the nodes on which a job can run, and equivalent profiles
//	feasible.go      leaves out jobs that could never start (maxWants, maxKinds)
//	ends.go          takes the expected ends of slices from the queue if a node's text hides them (PrivateData)
//	het.go           het jobs: finds components that slurmctld would start without the others (Stray)
//	lacks.go         jobs that lack CPUs or memory: when they can start, reservation time per user (maxPause 24 h)
//	extra_state.go   the entry caelum= in Extra, the state of a node's GPUs: format, version, Text
//	extra_parse.go   Parse reads that entry
//	extra_back.go    the entry caelum-back= in Extra: jobs that slurmctld did not start, for `caelum explain`
//	explain.go       `caelum explain`: Explain, the verdicts, the fields of an explanation
//	explain_job.go   jobs that have started or lack something other than slices, for example licences
//	explain_plan.go  explains jobs that wait for slices, from the plan
//	unresponsive.go  nodes that do not publish the plan's offers; when they are left out (Patience: 2 polls + 5 s)
//	unstarted.go     jobs not started although their slices are offered (patience 3 minutes, backTime 10 minutes)
package plan
