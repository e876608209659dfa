package place

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
)

// Request is a request for one GPU instance.
type Request struct {
	Profile string
	// Duration is the expected run time of the job in seconds, from its time limit or a prediction, or +Inf if unknown.
	Duration float64
}

// Situation is the input of a policy.
type Situation struct {
	Pool *Pool
	Now  float64 // the current time in seconds, on the time scale of the GPUs' Ends

	// Weights is the frequency of recent requests for each profile. If it is nil, all profiles have the same weight.
	Weights *Weights
	// MeanDuration is the mean duration, in seconds, of the recent jobs whose duration is known, or 0 if there are no
	// such jobs.
	MeanDuration float64
}

// Choice is a policy's decision about a request.
type Choice struct {
	Verdict   Verdict
	GPU       int // the index in the pool
	Placement int // the index into the Placements of that GPU's model
}

// Verdict is the decision about a request.
type Verdict int

const (
	Nowhere Verdict = iota // the policy would not use any placement
	Here                   // the placement is free, and the job can start
	Hold                   // the placement is busy, but worth waiting for; policies do not return this verdict
)

// Policy chooses the placement of a GPU instance.
type Policy interface {
	Choose(s *Situation, r Request) Choice
}

// Reach is the policy that maximizes the remaining reach of all GPUs together. See the package comment for the
// definition of reach.
var Reach Policy = byLayout(mostReach)

// DefaultPolicy is the name of the policy that agents use unless the configuration specifies another one. See "The
// default policy" in contrib/lab/results.md for the measurements.
const DefaultPolicy = "lifetime"

var policies = []struct {
	name string
	Policy
}{
	{"first-fit", byLayout(firstFit)},
	{"best-fit", byLayout(bestFit)},
	{"driver", byLayout(driver)},
	{"reach", Reach},
	{"mcc", byLayout(mostCC)},
	{"mecc", weighted(mostECC)},
	{"fragaware", FragAware{Threshold: 0.4}},
	{"grmu", GRMU{Heavy: 0.3}},
	{"lifetime", Lifetime{}},
}

// Names returns the names of all policies.
func Names() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// adjustable is a policy with a parameter from 0 to 1, such as the threshold of fragaware or the quota of grmu.
type adjustable interface{ with(share float64) Policy }

// ByName returns the policy with the given name. NAME=SHARE sets the parameter of an adjustable policy, as in
// fragaware=0.6. The error for an unknown name lists all names.
func ByName(name string) (Policy, error) {
	base, value, given := strings.Cut(name, "=")
	for _, p := range policies {
		if p.name != base {
			continue
		}
		if !given {
			return p.Policy, nil
		}
		a, ok := p.Policy.(adjustable)
		if !ok {
			return nil, fmt.Errorf("placement policy %q: %[2]s takes no parameter; write %[2]s", name, base)
		}
		share, err := strconv.ParseFloat(value, 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("placement policy %q: the share must be from 0 to 1, as in %s=0.4", name, base)
		}
		return a.with(share), nil
	}
	return nil, fmt.Errorf("unknown placement policy %q; use one of %s", name, strings.Join(Names(), ", "))
}

// cost determines the order of the candidates. A policy chooses the candidate with the lowest cost; ties are broken by
// the lowest GPU index and then by the lowest start.
type cost struct{ first, second float64 }

func (c cost) less(o cost) bool {
	return c.first < o.first || c.first == o.first && c.second < o.second
}

// candidate is a placement on a group's first GPU.
type candidate struct {
	cost
	gpu, placement int
}

func (c candidate) before(o candidate) bool {
	switch {
	case c.cost != o.cost:
		return c.cost.less(o.cost)
	case c.gpu != o.gpu:
		return c.gpu < o.gpu
	}
	return c.placement < o.placement
}

var none = candidate{cost: cost{math.Inf(1), math.Inf(1)}, gpu: math.MaxInt}

func (c candidate) choice() Choice {
	if c.gpu == math.MaxInt {
		return Choice{}
	}
	return Choice{Here, c.gpu, c.placement}
}

// each calls visit for every placement of the profile in every admitted group. Placements are skipped if acquiring them
// is more expensive than the cheapest acquisition in all admitted groups. If admitted is nil, all groups are admitted.
func (p *Pool) each(profile string, admitted func(*Group) bool, visit func(g *Group, placement int)) {
	for m := range endOfAcquisitions {
		found := false
		for _, b := range p.models {
			k, ok := b.model.ProfileIndex(profile)
			if !ok {
				continue
			}
			for _, g := range b.open[k] {
				set := g.AcquiredBy(m, k)
				if set == 0 || admitted != nil && !admitted(g) {
					continue
				}
				found = true
				for i := range set.Indices() {
					visit(g, i)
				}
			}
		}
		if found {
			return
		}
	}
}

// every calls visit for every group and every possible placement of the profile, regardless of how the placement would
// be acquired. Creating an instance takes at most half a second, whereas an unsuitable placement may delay other jobs
// by hours. Placements for which a MIG mode must be switched are visited only if no other placement is possible.
// Switching takes seconds, and a policy that ignored this would switch a GPU back and forth.
func (p *Pool) every(profile string, visit func(g *Group, placement int, m Acquisition)) {
	if !p.acquired(profile, Reuse, Switch, visit) {
		p.acquired(profile, Switch, endOfAcquisitions, visit)
	}
}

// acquired calls visit for every group and every placement of the profile whose acquisition is in the range [from, to).
// It reports whether it called visit at least once.
func (p *Pool) acquired(profile string, from, to Acquisition, visit func(g *Group, placement int, m Acquisition)) bool {
	found := false
	for _, b := range p.models {
		k, ok := b.model.ProfileIndex(profile)
		if !ok {
			continue
		}
		for _, g := range b.open[k] {
			for m := from; m < to; m++ {
				for i := range g.AcquiredBy(m, k).Indices() {
					found = true
					visit(g, i, m)
				}
			}
		}
	}
	return found
}

// acquisitionCost orders placements of equal cost, first by acquisition and then by remaining reach.
func acquisitionCost(g *Group, i int, m Acquisition) float64 {
	return float64(m)*1e6 - float64(g.Busy.With(i).Reach)
}

// byLayout is a policy whose costs depend only on the GPUs' layouts.
type byLayout func(g *Group, placement int) cost

// Choose implements [Policy].
func (f byLayout) Choose(s *Situation, r Request) Choice {
	best := none
	s.Pool.each(r.Profile, nil, func(g *Group, i int) {
		if c := (candidate{f(g, i), g.GPUs[0], i}); c.before(best) {
			best = c
		}
	})
	return best.choice()
}

// weighted is a policy whose costs depend on the GPUs' layouts and on the frequency of requests for each profile.
type weighted func(g *Group, placement int, weights []float64) cost

// Choose implements [Policy].
func (f weighted) Choose(s *Situation, r Request) Choice {
	best := none
	var model *mig.Model
	var weights []float64
	s.Pool.each(r.Profile, nil, func(g *Group, i int) {
		if g.Model != model {
			model, weights = g.Model, s.WeightsOn(g.Model)
		}
		if c := (candidate{f(g, i, weights), g.GPUs[0], i}); c.before(best) {
			best = c
		}
	})
	return best.choice()
}
