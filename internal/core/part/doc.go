// Package part converts a node's part of a plan to the text in the node's Comment in slurmctld, and back. The watcher
// makes the plan for the entire cluster once and writes the parts. Each agent reads only its own node's part
// (docs/internals/watcher.md, "A plan from the watcher"). The package is pure.
//
//	Of          the part of one node in a plan
//	Text, Parse the format of a part
//	Beat        the heartbeat of the planner, in the Comment of one node
//
// A part is only advice: regardless of its contents, the agent offers only those of its placements that fit alongside
// the node's leases.
//
// Files:
//
//	part.go  Part; Of; the entries in a node's Comment
//	text.go  the format of a part: Text and Parse
//	beat.go  the planner's heartbeat: its format, its period (Every) and the age at which it expires (Expiry)
//	confirmation.go  the confirmation that a node's record has not changed; Digest
//
// # The model
//
// The tests visit all states of two models of the protocol:
//
//   - explore_test.go visits the states of a model and prints the steps that lead to a violated rule.
//   - model_pass_test.go and model_steps_test.go: on one node, each job that slurmctld starts is assigned its slices,
//     regardless of the parts' contents.
//   - model_planner_test.go: with two nodes and up to two planners, the offers are correct one poll interval after a
//     failure.
package part
