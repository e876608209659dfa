package tags

import "strings"

// Caelum writes the following tags into a job's admin_comment, which may also contain text from other tools. Only
// administrators and job_submit.lua can write admin_comment: slurmctld does not allow users to change it, either at
// submission or later.
const (
	// Grow is followed by oom or forecast: an agent may requeue the job on a larger profile after the job has run out
	// of GPU memory (oom), or even before this happens (forecast).
	Grow = "caelum:grow="
	// Grown is followed by the job's growths (predict.FormatGrowths). The Size tag contains the resulting profile.
	Grown = "caelum:grown="
	// Held marks a job that job_submit.lua held at submission and that an agent must release. A hold without this tag
	// was set by a user or an administrator.
	Held = "caelum:held"
	// Released replaces Held when an agent has released the job. Any later hold was set by a user or an administrator.
	Released = "caelum:released"
	// Unconverted is followed by the reason why a job that waited during the installation has no slices and is held.
	// Underscores replace spaces.
	Unconverted = "caelum:unconverted="
	// Size is followed by the profile that Caelum chose for a job that did not name one.
	Size = "caelum:sized="
	// By is followed by what determined the profile in the Size tag: args, key, user or site for a learned line of the
	// decision table, default for its default line, full for its profile for several GPUs, memory for --mig-mem, or off
	// for --mig=off.
	By = "caelum:by="
	// Share is followed by cpus, memory or cpusmemory: Caelum has added the slice's share of these to a job that
	// requested none.
	Share = "caelum:share="
	// InsteadOf is followed by the smaller profile that the job would request if it had no time limit.
	InsteadOf = "caelum:instead-of="
	// RunTime is followed by the job's expected run time in seconds, and optionally by a hyphen and the 90% quantile of
	// the run time.
	RunTime = "caelum:runs="
	// Busy is followed by the job's busy share as a whole percentage from 0 to 100.
	Busy = "caelum:busy="
	// Key is followed by the job key, which has 16 hexadecimal digits.
	Key = "caelum:key="
	// Fingerprint is followed by the script fingerprint, which has 16 hexadecimal digits.
	Fingerprint = "caelum:work="
	// Args is followed by the numbers in the arguments of the job's script, separated by commas (predict.Numbers).
	Args = "caelum:args="
	// Requeued is followed by the number of times that the job was requeued because its slice was not available.
	Requeued = "caelum:requeued="
	// NoRoom is followed by the slices that were not available and by the name of the node. An agent writes this tag
	// when it stops requeuing a job and leaves the job held.
	NoRoom = "caelum:no-room="
	// Preempted is followed by the id of the job for which the watcher is stopping this job's run, the restart count of
	// the run, and the end of the grace time in Unix seconds, or 0 if the grace time has not begun.
	Preempted = "caelum:preempted="
	// Moved is followed by the id of the job for which the watcher is moving this job's run, or 0 if the run must not
	// be moved, and by the restart count of the run. With 0, the site's move_command or the user did not permit the
	// move, or the job excludes nodes. Any other id prevents all later moves of the job.
	Moved = "caelum:moved="
	// Preempts is followed by the job's restart count, the time in Unix seconds at which the watcher began to stop
	// other jobs for this job, and the number of its pending array tasks at that time, or 1.
	Preempts = "caelum:preempts="
)

// Has reports whether the tag is in the comment.
func Has(comment, word string) bool {
	if !strings.Contains(comment, word) {
		return false // the most common case
	}
	for w := range strings.FieldsSeq(comment) {
		if w == word {
			return true
		}
	}
	return false
}

// Value returns the value of the first tag that begins with prefix, or an empty string if there is no such tag.
func Value(comment, prefix string) string {
	for w := range strings.FieldsSeq(comment) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return rest
		}
	}
	return ""
}

// Remove returns the comment without the tag. One adjacent space is removed along with each occurrence. Nothing else is
// changed, because the comment may contain structured text from other tools.
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

// Set returns the comment with exactly one tag that begins with prefix: the prefix followed by the value, at the end.
func Set(comment, prefix, value string) string {
	for _, w := range strings.Fields(comment) {
		if strings.HasPrefix(w, prefix) {
			comment = Remove(comment, w)
		}
	}
	return Replace(comment, "", prefix+value)
}

// Replace returns the comment without the old tag and with the new one at the end. If old is empty, no tag is
// removed; if new is empty, none is added.
func Replace(comment, old, new string) string {
	if old != "" {
		comment = Remove(comment, old)
	}
	if new == "" || Has(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
