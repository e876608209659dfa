// Package papers implements schedulers and moves of research papers for the simulator (package sim), for comparisons
// with Caelum.
//
// Files:
//
//	order.go    Skip and Smallest: jobs that do not fit do not delay others
//	batches.go  Batches: starts the subset of the first jobs with the highest throughput (DynaP)
//	moves.go    Moves: moves and stops running jobs (FragAware, GRMU, DynaP), with the work that they lose
//	memory.go   Memory: memory predictions with an error; jobs run out of memory. Predictions of run times
//	moved.go    Moved: the reference that moves running jobs without cost
package papers
