// Package tags defines and interprets the tags in a job's admin_comment, which job_submit.lua, the agents and the
// watcher write. The section "Tags in admin_comment" of docs/internals/submission.md specifies which of them writes
// each tag. Package slurm reads and writes the comment as plain text.
//
// Files:
//
//	tags.go     the tags; finds, removes and replaces a tag among other tools' text
//	job.go      the meaning of a job's tags: profile chosen by Caelum, growths, unavailable slices, expected run time
//	            and end, busy share
//	preempt.go  the tags of a preemption or a move: the stopped run, and the job for which it is stopped
//	move.go     the runs that must not be moved again; the words in the job's Comment with which its user permits moves
//	            and reports saved work
package tags
