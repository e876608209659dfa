package agent

import (
	"strings"

	"caelum/internal/slurm"
)

// Words in a job's admin_comment that only agents write; see also package slurm's.
const (
	// markRequeued counts how often the job was sent back because its slice could not be had.
	markRequeued = "caelum:requeued="
	// markNoRoom says what could not be had, and where, when an agent gave up and left the job held.
	markNoRoom = "caelum:no-room="
)

// replaceMark puts one word in the place of another, or at the end. An empty word is none.
func replaceMark(comment, old, new string) string {
	if old != "" {
		comment = slurm.RemoveMark(comment, old)
	}
	if new == "" || slurm.HasMark(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
