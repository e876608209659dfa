// Package plan makes the plan for the whole cluster from the queue and the nodes that slurmctld returns. The data of a
// node includes the state of its GPUs, which its agent has published. Every agent, the watcher and `caelum explain` run
// this code on the same data. They therefore reach the same plan without exchanging messages, and no node is a leader.
// Package agent carries out a node's part of the plan.
//
//	Text, Parse   the state of a node's GPUs, as its agent publishes it in the node's Extra
//	Snapshot      the nodes and the queue, as slurmctld returned them
//	View          a snapshot converted for package offer: the GPUs of all nodes, and the waiting jobs
//	Explain       the reason why a job waits
//	Unresponsive  the nodes whose agents do not follow the plan
//	Unstarted     the jobs that slurmctld does not start although their slices are offered
//
// # When two plans differ
//
// Two agents that read slurmctld at different times may make different plans. A job's slices may then be offered on two
// nodes, or on no node, until one of the agents reads slurmctld again. This can delay a job, but it never causes a
// conflict over a slice: a node can carve every slice that it offers, regardless of the other nodes. An agent publishes
// every change of its node's state. The watcher then notifies the agents whose offers differ from the plan.
//
// An agent that hangs or cannot reach slurmctld does not follow the plan, so jobs that are planned on its node do not
// start. The other agents therefore exclude the node from their plans after some time ([Unresponsive]). A plan never
// includes a node on which slurmctld starts no jobs.
//
// Apart from Read and a cache of GPU models, the package is pure: the results of its functions depend only on their
// arguments, and the functions use no clock and no I/O. The package never changes the data of slurmctld.
//
// # Files
//
//	snapshot.go      Snapshot, Read; selects the waiting jobs that could start if they had their slices
//	view.go          View: the nodes and jobs of a snapshot for package offer; Plan, Counts
//	nodes.go         finds the nodes on which a job can run, and equivalent profiles
//	sizes.go         Settings of a site; larger profiles than a job requests (Sizes); profiles for speculative offers
//	feasible.go      excludes jobs that could never start (maxWants, maxKinds)
//	ends.go          computes the expected ends of slices from the queue if the nodes hide them (PrivateData)
//	het.go           het jobs: finds components that slurmctld would start without the others (Stray)
//	lacks.go         jobs that lack CPUs or memory: when they can start; how long a user's slices may stay reserved
//	extra_state.go   the entry caelum= in Extra, which contains the state of a node's GPUs: format, version, Text
//	extra_parse.go   Parse, which reads the entry caelum=
//	extra_back.go    the entry caelum-back= in Extra: jobs that slurmctld did not start, for `caelum explain`
//	explain.go       `caelum explain`: Explain, the verdicts, the fields of an explanation
//	explain_job.go   explains jobs that have started, or that lack something other than slices, for example licences
//	explain_plan.go  explains jobs that wait for slices, from the plan
//	unresponsive.go  nodes that do not publish the plan's offers, and the time until they are excluded (Patience)
//	unstarted.go     jobs that slurmctld does not start although their slices are offered (patience, backTime)
package plan
