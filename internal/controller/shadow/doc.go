// Package shadow computes the plan that an agent would carry out on a node, for a trial alongside the node's current
// configuration. `caelumd shadow` reads the state of the GPUs and of slurmctld, and prints the passes. The package
// makes the same plan as the agents (package plan) and performs no I/O, so it can change neither the GPUs nor
// slurmctld.
//
// Files:
//
//	shadow.go  Node: the node's GPUs as if they were in MIG mode and empty; Pass: the plan for a snapshot
//	jobs.go    the slices that jobs would request and hold
//	text.go    formats a pass
package shadow
