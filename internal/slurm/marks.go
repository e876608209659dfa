package slurm

import "strings"

// The words that Caelum keeps in a job's admin_comment, among what others keep there. Only an admin or
// job_submit.lua can write that field: slurmctld refuses it from a user, at submission and later.
const (
	// MarkHeld is on a job that job_submit.lua submitted held and that an agent shall release. A hold without it is a
	// user's or an admin's own.
	MarkHeld = "caelum:held"
	// MarkReleased takes the place of MarkHeld when an agent has released the job: a hold from then on is a user's or an
	// admin's own.
	MarkReleased = "caelum:released"
	// MarkSized comes before the profile that Caelum chose for a job that named none.
	MarkSized = "caelum:sized="
	// MarkKey comes before the job's key, 16 hexadecimal digits.
	MarkKey = "caelum:key="
	// MarkWork comes before the same without whose it is, 16 hexadecimal digits.
	MarkWork = "caelum:work="
)

// HasMark reports whether the comment has the word.
func HasMark(comment, word string) bool {
	for _, w := range strings.Fields(comment) {
		if w == word {
			return true
		}
	}
	return false
}

// Mark is the rest of the first word with the prefix, "" if there is none.
func Mark(comment, prefix string) string {
	for _, w := range strings.Fields(comment) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return rest
		}
	}
	return ""
}

// RemoveMark takes every occurrence of the word out, with one blank beside it, and leaves everything else as it stands:
// other tools keep structured text in the field.
func RemoveMark(comment, word string) string {
	parts := strings.Split(comment, " ")
	kept := parts[:0]
	for _, p := range parts {
		if p != word {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}
