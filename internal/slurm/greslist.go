package slurm

import (
	"slices"
	"strings"
)

// GRESList is a list of generic resources, for example a node's Gres or a job's allocation on a node.
type GRESList []GRES

// String returns the list in the form accepted by scontrol and sbatch, for example gpu:a100:7,mig:2g.10gb:1.
func (l GRESList) String() string {
	s := make([]string, len(l))
	for i, g := range l {
		s[i] = g.String()
	}
	return strings.Join(s, ",")
}

// Named returns the entries with this name.
func (l GRESList) Named(name string) (named GRESList) {
	for _, g := range l {
		if g.Name == name {
			named = append(named, g)
		}
	}
	return named
}

// Positive returns the entries with a count above 0.
func (l GRESList) Positive() (positive GRESList) {
	for _, g := range l {
		if g.Count > 0 {
			positive = append(positive, g)
		}
	}
	return positive
}

// Total returns the sum of the counts of all entries with this name.
func (l GRESList) Total(name string) (sum int) {
	for _, g := range l.Named(name) {
		sum += g.Count
	}
	return sum
}

// Profiles returns the sum of the gres/mig counts for each type, including [ClosedType].
func (l GRESList) Profiles() map[string]int {
	n := map[string]int{}
	for _, g := range l.Named("mig") {
		n[g.Type] += g.Count
	}
	return n
}

// Covers reports whether, for every name and type, the list contains at least as many units as part.
func (l GRESList) Covers(part GRESList) bool {
	type kind struct{ name, typ string }
	left := map[kind]int{}
	for _, g := range l {
		left[kind{g.Name, g.Type}] += g.Count
	}
	return !slices.ContainsFunc(part, func(g GRES) bool {
		k := kind{g.Name, g.Type}
		left[k] -= g.Count
		return left[k] < 0
	})
}
