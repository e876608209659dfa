package agent

import (
	"strings"

	"caelum/internal/slurm"
)

// These are the tags in a job's admin_comment that only agents write. Package slurm defines the other tags.
const (
	// tagRequeued is followed by the number of times that the job was requeued because its slice was not available.
	tagRequeued = "caelum:requeued="
	// tagNoRoom is followed by the slices that were not available and by the node. An agent writes this tag when it
	// gives up and leaves the job held.
	tagNoRoom = "caelum:no-room="
)

// replaceTag removes the tag old from comment, appends the tag new, and returns the result. An empty tag means no tag.
func replaceTag(comment, old, new string) string {
	if old != "" {
		comment = slurm.RemoveTag(comment, old)
	}
	if new == "" || slurm.HasTag(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
