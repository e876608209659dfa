// simulate runs a workload on a simulated cluster under several policies, like `caelum simulate`, and prints the
// results as comma-separated values. It also has options for comparisons with papers only: their traces, queues
// and moves, errors in predictions, deadlines, and the times that a GPU takes to change.
//
//	go run -C contrib/lab ./simulate --churn uniform6 --policies best-fit,lifetime,moved --queue skip
//	go run -C contrib/lab ./simulate --help
//
// Files:
//
//	main.go       the flags; runs the policies
//	options.go    the configuration of the simulation: cluster, queue, estimated run times
//	compare.go    the options for moves, memory and deadlines
//	workload.go   the jobs: synthetic, or from a file
//	print.go      the results as comma-separated values
package main
