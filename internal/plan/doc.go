// Package plan makes the plan for the whole cluster out of what slurmctld shows: the nodes, with what their agents have
// published of their GPUs, and the queue. Every agent, the watcher and `caelum explain` make it by this code from the
// same answers, so that they agree without asking one another, and no node leads. What an agent does about its own part
// of the plan, and how, is package agent's.
//
//	Text, Parse  what stands on a node's GPUs, as its agent writes it into the node's Extra
//	Look         slurmctld's answers at one moment
//	View         a look as package offer wants it: the GPUs of all nodes, and who waits for them
//	Explain      why a job waits
//
// # When they do not agree
//
// Two agents that looked at different moments may have different plans: a job may be on offer on two nodes, or on none
// until one of them looks again. That costs time, never a slice: what a node offers can be carved there whatever the
// others do. Whoever changes what stands on a node publishes it, and the watcher then tells those whose offers are not
// what they should be by now.
//
// A node whose agent does not follow (it hangs, or cannot reach slurmctld) would have jobs planned on it that never
// start: after a while the other agents plan without it ([Laggards]). A node that slurmctld starts nothing on is never
// planned for.
//
// All but Read is pure but for a cache of GPU models: values in, values out; no clock, no I/O.
package plan
