package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// settingsPrefix is the prefix of an entry in a node's Extra. The entry contains the policy and the sizing of the
// agent, for example "caelum-plan=lifetime,adaptive", and whole_share if it is not 0. `caelum doctor` and `caelum
// explain` compare the entries, because the plans of agents with different settings differ. The settings are not part
// of the node state, because agents of earlier releases reject a node state that contains an unknown item.
const settingsPrefix = "caelum-plan="

// WithSettings returns a node's Extra with this text in the entry caelum-plan. The other entries remain unchanged. If
// text is empty, the entry is removed.
func WithSettings(extra, text string) string { return withEntry(extra, settingsPrefix, text) }

// withEntry returns a node's Extra with this text in the entry with this prefix. The other entries remain unchanged. If
// text is empty, the entry is removed.
func withEntry(extra, prefix, text string) string {
	entries := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, prefix) })
	if text != "" {
		entries = append(entries, prefix+text)
	}
	return strings.Join(entries, " ")
}

// DifferentSettings returns the nodes whose agents have other settings than this text, grouped by their settings: for
// example "n1, n2 (lifetime,tightest)". Nodes without the entry are left out: their agents do not run, or are of an
// earlier release.
func DifferentSettings(nodes []slurm.Node, text string) (all []string) {
	names := map[string][]string{}
	for _, n := range nodes {
		for w := range strings.FieldsSeq(n.Extra) {
			if other, ok := strings.CutPrefix(w, settingsPrefix); ok && other != text {
				names[other] = append(names[other], n.Name)
			}
		}
	}
	for _, other := range slices.Sorted(maps.Keys(names)) {
		all = append(all, fmt.Sprintf("%s (%s)", strings.Join(names[other], ", "), other))
	}
	return all
}
