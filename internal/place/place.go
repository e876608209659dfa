package place

import (
	"fmt"
	"iter"
	"strings"
)

// Policy chooses where one GPU instance of a profile goes. Placement is an index in the Placements of the chosen GPU's
// board. A GPU whose board does not have the profile is no candidate; ok is false when there is none at all.
type Policy interface {
	Choose(gpus []GPU, profile string) (gpu, placement int, ok bool)
}

// DefaultPolicy is the name of the policy in force where nobody chose one.
const DefaultPolicy = "reach"

var policies = []struct {
	name string
	Policy
}{
	{"first-fit", FirstFit{}},
	{"reach", MostReach{}},
}

// Names lists the policies that ByName knows.
func Names() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// ByName finds a policy. The error lists those there are.
func ByName(name string) (Policy, error) {
	for _, p := range policies {
		if p.name == name {
			return p.Policy, nil
		}
	}
	return nil, fmt.Errorf("no placement policy %q; there are %s", name, strings.Join(Names(), ", "))
}

// candidates yields, by GPU and then by start, every placement of the profile that the cheapest means available anywhere
// can have.
func candidates(gpus []GPU, profile string) iter.Seq2[int, int] {
	return func(yield func(gpu, placement int) bool) {
		for means := range endOfMeans {
			found := false
			for k, g := range gpus {
				p, ok := g.Board.ProfileIndex(profile)
				if !ok {
					continue
				}
				for i := range g.By(means, p).Indices() {
					found = true
					if !yield(k, i) {
						return
					}
				}
			}
			if found {
				return
			}
		}
	}
}

// FirstFit takes the lowest GPU, and on it the lowest start.
type FirstFit struct{}

// Choose implements [Policy].
func (FirstFit) Choose(gpus []GPU, profile string) (gpu, placement int, ok bool) {
	for k, i := range candidates(gpus, profile) {
		return k, i, true
	}
	return 0, 0, false
}
