// Package tags defines and interprets the tags in a job's admin_comment. job_submit.lua and the agents write the tags.
// The section "Tags in admin_comment" of docs/internals.md specifies the writer of each tag. Package slurm reads and
// writes the comment as plain text.
//
// Files:
//
//	tags.go  the tags; finds, removes and replaces a tag among the text of other tools
//	job.go   what the tags of a job mean: profile chosen by Caelum, expected run time and end, busy
//	         share
package tags

import "strings"

// These are the tags that Caelum writes into a job's admin_comment, in addition to texts of other tools. Only
// administrators and job_submit.lua can write this field: slurmctld does not allow users to change it, neither at
// submission nor later.
const (
	// Held marks a job that job_submit.lua has held at submission, and that an agent must release. A hold without this
	// tag was set by a user or an administrator.
	Held = "caelum:held"
	// Released replaces Held when an agent has released the job. Any later hold was set by a user or an administrator.
	Released = "caelum:released"
	// Size is followed by the profile that Caelum chose for a job without a profile.
	Size = "caelum:sized="
	// RunTime is followed by the expected run time of the job, in seconds.
	RunTime = "caelum:runs="
	// Busy is followed by the share of the job's run time on one compute slice for which the job keeps that slice busy,
	// in percent: a whole number from 0 to 100.
	Busy = "caelum:busy="
	// Key is followed by the job's key, 16 hexadecimal digits.
	Key = "caelum:key="
	// Fingerprint is followed by the script fingerprint, which has 16 hexadecimal digits.
	Fingerprint = "caelum:work="
	// Requeued is followed by the number of times that the job was requeued because its slice was not available.
	Requeued = "caelum:requeued="
	// NoRoom is followed by the slices that were not available, and by the node. An agent writes this tag when it gives
	// up on a job and leaves it held.
	NoRoom = "caelum:no-room="
)

// Has reports whether the comment contains the tag.
func Has(comment, word string) bool {
	for _, w := range strings.Fields(comment) {
		if w == word {
			return true
		}
	}
	return false
}

// Value returns the value of the first tag with this prefix, or an empty string if there is none.
func Value(comment, prefix string) string {
	for _, w := range strings.Fields(comment) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return rest
		}
	}
	return ""
}

// Remove returns the comment without the tag. With each occurrence, it also removes one adjacent blank. It changes
// nothing else, because the field may contain structured text of other tools.
func Remove(comment, word string) string {
	parts := strings.Split(comment, " ")
	kept := parts[:0]
	for _, p := range parts {
		if p != word {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}

// Replace returns the comment without the tag old and with the tag new at its end. An empty string means that there is
// no tag.
func Replace(comment, old, new string) string {
	if old != "" {
		comment = Remove(comment, old)
	}
	if new == "" || Has(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
