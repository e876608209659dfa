package inventory

import (
	"maps"
	"slices"

	"caelum/internal/slurm"
)

// GRESLine returns the node's complete GRES list with new gres/mig counts. Because an update replaces the whole list,
// the node's other GRES are copied unchanged. profiles lists the profiles that the node publishes. ok is false if the
// sum of the counts exceeds total.
func GRESLine(
	node slurm.Node, profiles []string, total int, totals map[string]int,
) (line slurm.GRESList, ok bool) {
	names := slices.Clone(profiles)
	for _, g := range node.Gres {
		if g.Name == "mig" && g.Type != slurm.ClosedType && !slices.Contains(names, g.Type) {
			names = append(names, g.Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		if name != slurm.ClosedType && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, g := range node.Gres {
		if g.Name != "mig" {
			line = append(line, g)
		}
	}
	rest := total
	for _, name := range names {
		line = append(line, slurm.GRES{Name: "mig", Type: name, Count: totals[name]})
		rest -= totals[name]
	}
	return append(line, slurm.GRES{Name: "mig", Type: slurm.ClosedType, Count: max(rest, 0)}), rest >= 0
}

// GuessTotal estimates N from a node's record. After a restart of slurmd, the count of `closed` is the one that `caelum
// slurm-config` prints for the node's slots. In this case, GuessTotal returns this count; otherwise, it returns the sum
// over all types.
func GuessTotal(node slurm.Node) int {
	has := node.Gres.Profiles()
	if has[slurm.ClosedType] == Total(node.Gres.Total("gpu")) {
		return has[slurm.ClosedType]
	}
	sum := 0
	for _, n := range has {
		sum += n
	}
	return sum
}
