// Package jobreport describes a job's request, slices and usage, and gives advice on its next submission. The data
// comes from slurmdbd: the job's records, the tags in admin_comment and the agents' summaries of the job's runs. The
// package neither queries slurmdbd nor prints anything: `caelum report` does both.
//
// The package is pure: it does not read a clock and performs no I/O.
//
// Files:
//
//	report.go   Report: a job, an array or a het job, and its GPU-hours
//	job.go      Job: a job's request, slices, usage and earlier runs
//	advice.go   Advice: the kinds of advice and the order in which a report lists them
//	size.go     advice on the profile: well sized, too large, out of memory, not measured, not ended
//	again.go    advice on requeues, growths and the time limit
//	saved.go    Saved: the GPU-hours of slices, and of whole GPUs for the same jobs (maxDays)
package jobreport
