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

// Slots returns the largest number of slots, up to most, that some of the node's gres/gpu types can add up to. The
// other types are GPUs that Slurm allocates without slices, such as gpu:whole:1 in docs/configure/isolation.md:
// slurmctld does not show which types are slots.
func Slots(node slurm.Node, most int) int {
	sums := map[int]bool{0: true}
	for _, g := range node.Gres.Named("gpu") {
		for sum := range maps.Clone(sums) {
			sums[sum+g.Count] = sum+g.Count <= most
		}
	}
	best := 0
	for sum, fits := range sums {
		if fits {
			best = max(best, sum)
		}
	}
	return best
}

// GuessTotal estimates N from a node's record. After a restart of slurmd, the count of `closed` is the one that `caelum
// slurm-config` prints for the node's slots (Slots). In this case, GuessTotal returns this count; otherwise, it returns
// the sum over all types.
func GuessTotal(node slurm.Node) int {
	has := node.Gres.Profiles()
	if closed := has[slurm.ClosedType]; closed > 0 && closed == Total(Slots(node, closed/Total(1))) {
		return closed
	}
	sum := 0
	for _, n := range has {
		sum += n
	}
	return sum
}
