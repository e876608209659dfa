package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"caelum/internal/core/mig"
)

// UnusedTypes returns, for each GRES type in units ([FractionOptions]) that divides none of a node's GPUs, the reason.
// The type may be misspelled, or one of other nodes with the same caelum.yaml. UnusedTypes returns nil if a GPU is
// broken, because the GPU may have the type.
func UnusedTypes(units map[string]int, gpus []GPU) (unused []string) {
	why := map[string]string{} // by type; "" if the type is divided
	for _, g := range gpus {
		t := mig.GRESType(g.Name)
		switch {
		case g.Name == "" || Broken(g.Problem):
			return nil
		case g.Model != nil && (g.Problem == WithoutMIG || g.Model.WithoutMIG()):
			why[t] = ""
		case g.Problem == WithoutMIG:
			why[t] = "GPUs of this type beside GPUs that support MIG are not managed"
		default:
			why[t] = "GPUs of this type support MIG, and jobs get MIG slices of them"
		}
	}
	types := slices.Sorted(maps.Keys(why))
	types = slices.DeleteFunc(types, func(t string) bool { return why[t] != "" })
	has := "the types without MIG on this node: " + cmp.Or(strings.Join(types, ", "), "none")
	for _, t := range slices.Sorted(maps.Keys(units)) {
		reason, known := why[t]
		if !known {
			reason = "no GPU of this node has this type"
		}
		if reason != "" {
			unused = append(unused, fmt.Sprintf("`fractions` divides no %s: %s (%s)", t, reason, has))
		}
	}
	return unused
}
