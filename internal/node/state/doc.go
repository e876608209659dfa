// Package state holds the state of the agent's node in memory: the GPUs with their instances, the leases, the pending
// leases, and the node's part of the current plan. Prologs, epilogs, the publisher and the comparisons with the driver
// share it. The package calls neither the driver nor slurmctld, and writes no files.
//
// A goroutine locks the Node to use its fields, and never while it calls the driver or slurmctld. A Card's Hardware
// lock, which a goroutine holds during a driver call, is locked first.
//
// Files:
//
//	node.go      Node: New, the state as input for the planner (View), the slices that jobs hold
//	card.go      Card and Instance: a GPU and the instances on it; why they cannot be used
//	planpart.go  PlanPart: the node's part of the plan; offers a released slice again to the next job (OfferAgain)
//	pending.go   pending leases: chooses among the offers for a job (TakeOffers); finds spots for unplaced ones
//	wants.go     the slices that a job gets on this node; the errors for invalid requests
//	relabel.go   moves a GPU's fractions together, so that a larger one fits (Repack); reserves units for one that grows
//	             (Growth); renames leased slices
//	nvlinks.go   the groups of GPUs that NVLinks connect
package state
