// Package trace reads and makes workloads: lists of jobs that asked for GPU instances. It never plays them; package sim does.
package trace

import "iter"

// Job is one of a workload.
type Job struct {
	ID       string
	Submit   float64 // seconds since the workload's beginning
	Duration float64 // how long it runs once it has started, in seconds
	Limit    float64 // its time limit, in seconds; 0: unknown
	Profile  string  // of the GPU instance that it needs
}

// Jobs is a workload in the order of submission.
type Jobs = iter.Seq[Job]
