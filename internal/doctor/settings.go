package doctor

import (
	"strings"

	"caelum/internal/plan"
)

// planSettings names the nodes whose agents have another policy or sizing than this host.
func planSettings(f *Facts) []Finding {
	all := plan.DifferentSettings(f.Nodes, f.Settings)
	return findingIf(warning(
		"this host has the policy and sizing "+f.Settings+", but other nodes have different ones: "+
			strings.Join(all, "; ")+". The plans of these agents differ, so jobs can wait longer, and "+
			"`caelum explain` on this host can be wrong",
		"set the same policy and sizing in caelum.yaml on all nodes, for the watcher and where users run "+
			"`caelum explain`, and restart caelumd and caelum-watch",
	), len(all) > 0)
}
