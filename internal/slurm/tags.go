package slurm

import "strings"

// The words that Caelum keeps in a job's admin_comment, among what others keep there. Only an admin or
// job_submit.lua can write that field: slurmctld refuses it from a user, at submission and later.
const (
	// TagHeld is on a job that job_submit.lua submitted held and that an agent shall release. A hold without it is a
	// user's or an admin's own.
	TagHeld = "caelum:held"
	// TagReleased takes the place of TagHeld when an agent has released the job: a hold from then on is a user's or an
	// admin's own.
	TagReleased = "caelum:released"
	// TagSized comes before the profile that Caelum chose for a job that named none.
	TagSized = "caelum:sized="
	// TagRuns comes before how long the job is expected to run, in seconds.
	TagRuns = "caelum:runs="
	// TagKey comes before the job's key, 16 hexadecimal digits.
	TagKey = "caelum:key="
	// TagFingerprint comes before the script fingerprint, 16 hexadecimal digits.
	TagFingerprint = "caelum:work="
)

// HasTag reports whether the comment has the tag.
func HasTag(comment, word string) bool {
	for _, w := range strings.Fields(comment) {
		if w == word {
			return true
		}
	}
	return false
}

// TagValue returns the value of the first tag with the prefix, "" if there is none.
func TagValue(comment, prefix string) string {
	for _, w := range strings.Fields(comment) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return rest
		}
	}
	return ""
}

// RemoveTag takes every occurrence of the tag out, with one blank beside it, and leaves everything else as it stands:
// other tools keep structured text in the field.
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
