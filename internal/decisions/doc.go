// Package decisions reads the decision table, from which job_submit.lua takes the profile of a job. It never writes the
// table. docs/internals.md ("The decision table") describes the format. contrib/job_submit.lua reads the same format,
// rejects the same tables and gives the same reasons; FuzzTable in contrib/job_submit compares the two readers.
// Files:
//
//	table.go  Table; the lines of a decision table (Parse), their limits (MaxLines, MaxBytes) and the error texts
package decisions
