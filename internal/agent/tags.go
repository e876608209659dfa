package agent

import (
	"strings"

	"caelum/internal/slurm"
)

// Tags in a job's admin_comment that only agents write. Package slurm has the other tags.
const (
	// tagRequeued has the number of times that the job was requeued because its slice was not available.
	tagRequeued = "caelum:requeued="
	// tagNoRoom has the slices that were not available and the node. An agent writes it when it gives up and leaves the
	// job held.
	tagNoRoom = "caelum:no-room="
)

// replaceTag returns comment without the tag old and with the tag new at its end. An empty tag means no tag.
func replaceTag(comment, old, new string) string {
	if old != "" {
		comment = slurm.RemoveTag(comment, old)
	}
	if new == "" || slurm.HasTag(comment, new) {
		return comment
	}
	return strings.TrimSpace(comment + " " + new)
}
