// Command whole compares two ways of dividing a cluster between jobs with several GPUs and jobs with slices, and prints
// Markdown tables for contrib/lab/results.md.
//
//	go run ./whole split [options] [LIST]     shared nodes and the best split into two partitions
//	go run ./whole quota [options] [LIST]     shared nodes with several values of whole_share
//	go run ./whole policies [options] [LIST]  shared nodes with several placement policies
//
// LIST is a pod list of Alibaba's gpu-v2023 trace (openb_pod_list_default.csv). Without LIST, the jobs are synthetic
// (trace.Churn).
//
// On shared nodes, each GPU is either full or cut into slices, and all jobs wait in one queue. With a split, the jobs
// with several GPUs run in one partition and the jobs with slices, carved on demand, in another. Each partition has its
// own queue. The best split is the one with the shortest mean wait over all jobs and tuning seeds.
//
// Files:
//
//	main.go     the commands and their options
//	jobs.go     the jobs: days of Alibaba's list in random order, or churn
//	play.go     simulations of shared nodes and partitions; the waits by class; the search for the best split
//	tables.go   the tables
package main
