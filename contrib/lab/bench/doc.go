// Command bench measures the cost of Caelum on a devcluster, for `make bench`. Because times differ between machines
// and vary between runs, only differences and ratios within one run are meaningful.
//
// Files:
//
//	main.go         the options; the agent's time in a prolog (own_ms, slurmctld_ms, driver_ms), and publishing in sdiag
//	plugin.go       the plugin's cost for sbatch and a step, with and without the plugin (-paired); median, interval
//	against.go      -against: the plugin and the prologs of this build and of another build, in turn (rounds)
//	rpcs.go         -rpcs: the requests of the agents and the watcher to slurmctld, at rest and under load, from sdiag
//	scale.go        -scale: slurmctld's CPU time for each command of the agents and the watcher, with many node records
//	queue.go        -queue: what Caelum's commands and daemons need with a queue that one user has filled
//	top.go          -top: the duration of a refresh of caelum top, and the CPU time that it costs slurmctld
//	short.go        -short, -rounds: many short jobs with gres/gpu only, with static slices, and with Caelum
//	preemption.go   -preemption: the cases of preemption on clusters with static slices and with Caelum
//	preempted.go    the results of -preemption from sacct and slurmctld's log
//	submissions.go  -submissions: slurmctld's time for a submission, with and without job_submit.lua
//	waits.go        -waits, -only-waits, -waits-nodes: waits from submission to start, with and without an offer and a
//	                watcher
//	scenarios.go    -ways and its options: one trace with whole GPUs, with the best fixed layouts, and with Caelum
//	multi.go        -ways-multi: -ways with jobs that need several full GPUs; the best split; results by class
//	speeds.go       -ways-speeds: one trace of jobs whose run times depend on their slices, in four configurations
//	granted.go      the results of -ways-speeds, and the check of all slices against the jobs' outputs and sacct
//	learned.go      -learned: equal jobs after one earlier run, with whole GPUs and with Caelum's default configuration
//	growth.go       -grow, -grow-seed: one trace of jobs whose memory grows, with each growth mode
//	growthruns.go   the results of -grow from the agents' logs: GPU-seconds lost, turnaround, failures, requeues
//	outcomes.go     the results of -ways: waits, makespan, utilization, slurmctld's scheduling cycles
package main
