// Package trace reads and generates workloads, which are lists of jobs that request GPU instances. Package sim
// simulates workloads.
//
// If a reader cannot parse a line, the error names the file, the line and the reason. Some jobs are left out without an
// error, for example those without a GPU and those that never ended. For each reason, the reader returns the number of
// jobs that it left out.
//
// Files:
//
//	churn.go    the synthetic workload Churn, and its mixes of profiles
//	sacct.go    a site's own jobs from `sacct -P`: the columns; the needs of a job, from AllocTRES or its usage
//	table.go    Table: parses rows of values below a line of column names; the errors
//	trace.go    Job and Workload; the profile of a job on a GPU model; jobs left out, by reason; LineError
package trace
