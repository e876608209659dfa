// Package plan makes the plan for the whole cluster from slurmctld's answers: the nodes, with the state of their GPUs
// as their agents have published it, and the queue. Every agent, the watcher and `caelum explain` use this code on the
// same answers. They therefore agree without exchanging messages, and no node is a leader. Package agent decides how a
// node carries out its part of the plan.
//
//	Text, Parse   the state of a node's GPUs, as its agent writes it into the node's Extra
//	Snapshot      slurmctld's answers to one reading
//	View          a snapshot in the form that package offer needs: the GPUs of all nodes, and the jobs that wait
//	Explain       why a job waits
//	Unresponsive  the nodes that do not follow the plan
//	Unstarted     the jobs that slurmctld does not start although their slices are on offer
//
// # When two plans differ
//
// Two agents that read slurmctld at different times may make different plans. A job may then be on offer on two nodes,
// or on none until one of the two agents reads slurmctld again. This costs time, but never a slice: a node can carve
// everything that it offers, whatever the other nodes do. An agent publishes every change of its node's state. The
// watcher then notifies the agents whose offers differ from the plan.
//
// The agent of a node may not follow the plan because it hangs or cannot reach slurmctld. Jobs that are planned on such
// a node never start, so the other agents leave the node out of their plans after a while ([Unresponsive]). Nodes on
// which slurmctld starts no jobs are never part of a plan.
//
// The package is pure except for Read and a cache of GPU models: values in, values out, no clock, no I/O. It never
// changes anything in slurmctld.
//
// # Files
//
//	snapshot.go      Snapshot, Read; the waiting jobs that could start if they had their slices
//	view.go          View: the nodes and jobs of a snapshot for package offer; Plan, Counts
//	nodes.go         the nodes on which a job can run; equivalent profiles
//	feasible.go      jobs that could never start are left out; maxWants, maxKinds
//	ends.go          expected ends of slices from the queue, where a node's text hides them (PrivateData)
//	het.go           het jobs: which components slurmctld would start alone (Stray)
//	lacks.go         jobs that lack CPUs or memory: when they can start, time accounts of users (maxPause 24 h)
//	extra_state.go   the entry caelum= in Extra, the state of a node's GPUs: format, version, Text
//	extra_parse.go   Parse reads that entry
//	extra_back.go    the entry caelum-back= in Extra: jobs that slurmctld did not start, for `caelum explain`
//	explain.go       `caelum explain`: Explain, the verdicts, the fields of an explanation
//	explain_job.go   jobs that have started, or would not start if their slices were free; why no node is eligible
//	explain_plan.go  jobs that wait for slices, explained by the plan
//	unresponsive.go  nodes that do not publish the plan's offers; when they are left out (Patience: 2 polls + 5 s)
//	unstarted.go     jobs not started although their slices are on offer (patience 3 minutes, backTime 10 minutes)
package plan
