// Package trace reads and generates workloads: lists of jobs that requested GPU instances. It never simulates them;
// package sim does.
//
// If a reader cannot read a line, the error names the file, the line and the reason. Some jobs are left out without an
// error, such as a job without a GPU or a job that never ended. The reader counts these jobs by reason.
//
// Files:
//
//	alibaba.go  Alibaba's gpu-v2023 pod lists, as shares of a GPU or with GRMU's profiles
//	churn.go    the synthetic workload Churn, and its mixes of profiles
//	miso.go     the measurements of the MISO paper
//	sacct.go    a site's own jobs from `sacct -P`: its columns, and what a job needs by AllocTRES or usage
//	site.go     the synthetic workload Site: bursts, durations, time limits
//	table.go    reads rows below a line of column names, with commas or bars; error texts
//	trace.go    Job and Workload; the profile of a job on a GPU model; jobs left out, by reason; LineError
package trace
