package eligible

import (
	"fmt"
	"slices"

	"caelum/internal/slurm"
)

// LacksFeatures returns the reason why a job with constraint c cannot use a node with the given features, or an empty
// string if it can. nodes is the number of nodes that the job requests.
func LacksFeatures(c slurm.Constraint, features []string, nodes int) string {
	switch {
	case c.Problem != "":
		return fmt.Sprintf("cannot be chosen for the constraint %s, which %s", c.Text, c.Problem)
	case c.Nodes > max(nodes, 1):
		return fmt.Sprintf("cannot be chosen for the constraint %s, which needs %d nodes, but the job requests %d",
			c.Text, c.Nodes, max(nodes, 1))
	case !meets(features, c.Always), len(c.AnyOf) > 0 && !slices.ContainsFunc(c.AnyOf, met(features)):
		return "does not have the features " + c.Text
	}
	return ""
}

// MeetsAlternative reports whether a node with the given features satisfies alternative k of a constraint ([a|b]). All
// nodes of a job must satisfy the same alternative.
func MeetsAlternative(c slurm.Constraint, k int, features []string) bool {
	return met(features)(c.AnyOf[k])
}

// met returns a function that reports whether the given features satisfy a group.
func met(features []string) func(slurm.FeatureGroup) bool {
	return func(g slurm.FeatureGroup) bool {
		met := true
		for _, f := range g.Features {
			has := slices.Contains(features, f.Name)
			if f.Or {
				met = met || has
			} else {
				met = met && has
			}
		}
		return met
	}
}

// meets reports whether the features satisfy the groups, evaluating the operators between them from left to right.
func meets(features []string, groups []slurm.FeatureGroup) bool {
	in, all := met(features), true
	for _, g := range groups {
		if g.Or {
			all = all || in(g)
		} else {
			all = all && in(g)
		}
	}
	return all
}
