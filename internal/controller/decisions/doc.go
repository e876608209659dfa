// Package decisions parses the decision table, from which job_submit.lua reads the profile for a job. Package learn
// writes it. The section "The decision table" in docs/internals/submission.md describes the format. job_submit.lua
// parses the same format, rejects the same tables and logs the same reasons; FuzzTable in spank/submit compares the two
// parsers.
//
// Files:
//
//	table.go  Table; the lines of a decision table (Parse), their limits (MaxLines, MaxBytes) and the errors
//	check.go  all faults of a table, with their lines (Check)
package decisions
