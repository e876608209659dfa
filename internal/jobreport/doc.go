// Package jobreport describes what a job requested, got and used, and gives advice on its next submission. The data
// comes from slurmdbd: the job's records, the tags in admin_comment and the agents' summaries of the job's runs.
// Package jobreport neither queries slurmdbd nor prints: `caelum report` does both.
//
// The package is pure: it uses no clock and no I/O.
//
// Files:
//
//	report.go   Report: a job, an array or a het job, and its GPU-hours
//	job.go      Job: a job's request, slices, usage and earlier runs
//	advice.go   Advice: the kinds of advice and the order in which a report contains them
//	size.go     advice on the profile: well sized, too large, out of memory, not measured
//	again.go    advice on requeues, growths and the time limit
package jobreport
