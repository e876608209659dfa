// Package gpuhours computes the GPU time used by the runs in slurmdbd's records, weighted by the fraction of the GPU
// that each slice occupied. Slurm itself counts a slice of any size as one GPU (gres/gpu=1) or as one slice
// (gres/mig=1). Package gpuhours neither queries slurmdbd nor prints: `caelum usage` does both.
//
// The package is pure: it does not read a clock and performs no I/O.
//
// Files:
//
//	hours.go     Hours: the GPU-seconds of each record; which of several sources describes the slices of a run
//	observed.go  Observe: the agents' summaries of each run
//	shares.go    the share of a GPU that a profile occupies; the GPU models that a node may have
//	sum.go       Sum: the totals for each account, user or partition
package gpuhours
