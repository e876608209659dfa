package agent

import (
	"strings"

	"caelum/internal/slurm"
)

// Words in a job's admin_comment that only agents write; see also package slurm's.
const (
	// tagRequeued counts how often the job was sent back because its slice could not be had.
	tagRequeued = "caelum:requeued="
	// tagNoRoom says what could not be had, and where, when an agent gave up and left the job held.
	tagNoRoom = "caelum:no-room="
)

// replaceTag puts one tag in the place of another, or at the end. An empty word is none.
func replaceTag(comment, old, new string) string {
	if old != "" {
		comment = slurm.RemoveTag(comment, old)
	}
	if new == "" || slurm.HasTag(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
