// Package growtrace contains the code shared by `contrib/lab/learn grow` and `devcluster-bench -grow`: the memory use
// of emulated jobs over time, and a trace of such jobs that both the simulator and a real Slurm cluster can run.
//
// Files:
//
//	curve.go  Curve: a run's memory over time
//	trace.go  Trace: short jobs with curves; a job's arguments for cuda-process
//	result.go Result: the results of a trace, as a table; the delays that both use
package growtrace
