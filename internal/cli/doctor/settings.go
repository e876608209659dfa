package doctor

import (
	"strings"

	"caelum/internal/core/plan"
)

// planSettings reports the nodes whose agents' policy or sizing differs from the one configured on this host.
func planSettings(f *Facts) []Finding {
	all := plan.DifferentSettings(f.Nodes, f.Settings)
	return findingIf(warning(
		"this host has the policy and sizing "+f.Settings+", but other nodes have a different policy or sizing: "+
			strings.Join(all, "; ")+". The plans of these agents differ, so jobs may wait longer, and "+
			"`caelum explain` on this host may be wrong",
		"set the same policy and sizing in caelum.yaml on all nodes, on the watcher's host and on every host where "+
			"users run `caelum explain`; then restart caelumd and caelum-watch",
	), len(all) > 0)
}
