// Package trace reads and generates workloads, which are lists of jobs that request GPU instances. Package sim
// simulates workloads.
//
// If a reader cannot parse a line, the error contains the file, the line and the reason. A reader leaves out some jobs
// without an error, for example jobs without a GPU and jobs that never ended. The reader returns the number of jobs
// that were left out for each reason.
//
// Files:
//
//	alibaba.go  Alibaba's gpu-v2023 pod lists, as shares of a GPU or with GRMU's profiles
//	churn.go    the synthetic workload Churn, and its mixes of profiles
//	miso.go     the measurements of the MISO paper
//	sacct.go    a site's own jobs from `sacct -P`: the columns; the needs of a job according to AllocTRES or usage
//	site.go     the synthetic workload Site: bursts, durations, time limits
//	table.go    parses rows below a line of column names, separated by commas or bars; the errors
//	trace.go    Job and Workload; the profile of a job on a GPU model; jobs left out, by reason; LineError
package trace
