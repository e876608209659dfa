package doctor

import (
	"strings"

	"caelum/internal/plan"
)

// planSettings reports the nodes whose agents have another policy or sizing than this host.
func planSettings(f *Facts) []Finding {
	all := plan.DifferentSettings(f.Nodes, f.Settings)
	return findingIf(warning(
		"this host has the policy and sizing "+f.Settings+", but other nodes have a different policy or sizing: "+
			strings.Join(all, "; ")+". The plans of these agents differ, so jobs can wait longer, and "+
			"`caelum explain` on this host can be wrong",
		"set the same policy and sizing in caelum.yaml on all nodes, on the watcher's host and on every host on which "+
			"users run `caelum explain`; then restart caelumd and caelum-watch",
	), len(all) > 0)
}
