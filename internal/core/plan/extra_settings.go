package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/slurm"
)

// settingsPrefix is the prefix of an entry in a node's Extra that shows the agent's policy and sizing, and its
// whole_share if that is not 0: for example, "caelum-plan=lifetime,adaptive". `caelum doctor` and `caelum explain`
// compare the entries, because the plans of agents with different settings differ. They are not part of the node
// state, because agents from earlier releases reject a state with an unknown item.
const settingsPrefix = "caelum-plan="

// WithSettings returns a node's Extra with text as its `caelum-plan` entry, or without this entry if text is empty.
// The other entries remain unchanged.
func WithSettings(extra, text string) string { return withEntry(extra, settingsPrefix, text) }

// withEntry returns a node's Extra with text in the entry with this prefix, or without this entry if text is empty.
// The other entries remain unchanged.
func withEntry(extra, prefix, text string) string {
	entries := slices.DeleteFunc(strings.Fields(extra), func(w string) bool { return strings.HasPrefix(w, prefix) })
	if text != "" {
		entries = append(entries, prefix+text)
	}
	return strings.Join(entries, " ")
}

// DifferentSettings returns the nodes whose agents' settings differ from the given ones, grouped by setting: for
// example, "n1, n2 (lifetime,tightest)". Nodes without the entry are left out, because their agents are not running or
// are from an earlier release.
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
