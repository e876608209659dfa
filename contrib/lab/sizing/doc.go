// Command sizing compares the turnaround of jobs on whole GPUs, on fixed layouts, on slices of the requested profile,
// and on slices whose size the planner chooses (internal/core/offer/size.go). It prints Markdown tables for results.md.
//
//	go run ./sizing rates [-seeds 101-120] PATH    MISO's 100 jobs: mean and longest turnarounds
//	go run ./sizing speeds [-seeds 101-120]        drawn jobs on several GPU models, with exact and wrong speeds
//	go run ./sizing learned [-seeds 101-110] PATH  recurring jobs whose speeds are learned from their runs
//	go run ./sizing long [-seeds 101-110] PATH     600 jobs with several values of max_slowdown
//	go run ./sizing equal [-seeds 101-110]         jobs that are equally fast on all profiles
//
// PATH is a directory with the MISO paper's files, jobs_100.csv and a100_40gb_mig_step_time.csv. The placement policy
// is lifetime.
//
// Files:
//
//	main.go      the commands and their seeds
//	cluster.go   the GPUs and the queue; ways to use the GPUs; a simulation and its turnarounds
//	figures.go   mean, quantile, and the worst jobs' slowdown; prints tables; lists the cells with bad ratios
//	miso.go      MISO's jobs, in the order of their list, or several times in random order
//	rates.go     the rates command: MISO's jobs with several queues and submission rates
//	long.go      the long command: repeated jobs with several values of max_slowdown
//	draw.go      drawn jobs: busy shares by Amdahl's law, memory, run times; estimated speeds and time limits
//	speeds.go    the speeds command: drawn jobs on A100, H100 and A30
//	learned.go   the learned command: internal/core/predict learns the speeds from the runs that have ended
//	equal.go     the equal command: mean waits of churn
package main
