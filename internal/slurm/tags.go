package slurm

import "strings"

// These are the tags that Caelum writes into a job's admin_comment, beside the text of other tools. Only an
// administrator or job_submit.lua can write that field: slurmctld does not let users change it, neither at submission
// nor later.
const (
	// TagHeld marks a job that job_submit.lua submitted held and that an agent must release. A hold without this tag
	// was set by a user or an admin.
	TagHeld = "caelum:held"
	// TagReleased replaces TagHeld when an agent has released the job. Any later hold was set by a user or an admin.
	TagReleased = "caelum:released"
	// TagSized is followed by the profile that Caelum chose for a job without a profile.
	TagSized = "caelum:sized="
	// TagRuns is followed by the expected run time of the job, in seconds.
	TagRuns = "caelum:runs="
	// TagKey is followed by the job's key, 16 hexadecimal digits.
	TagKey = "caelum:key="
	// TagFingerprint is followed by the script fingerprint, 16 hexadecimal digits.
	TagFingerprint = "caelum:work="
)

// HasTag reports whether the comment contains the tag.
func HasTag(comment, word string) bool {
	for _, w := range strings.Fields(comment) {
		if w == word {
			return true
		}
	}
	return false
}

// TagValue returns the value of the first tag with the prefix, or "" if there is none.
func TagValue(comment, prefix string) string {
	for _, w := range strings.Fields(comment) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return rest
		}
	}
	return ""
}

// RemoveTag returns the comment without the tag. With each occurrence it removes one adjacent blank. It changes nothing
// else, because other tools have structured text in the field.
func RemoveTag(comment, word string) string {
	parts := strings.Split(comment, " ")
	kept := parts[:0]
	for _, p := range parts {
		if p != word {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}
