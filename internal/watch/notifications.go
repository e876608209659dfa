package watch

import (
	"fmt"
	"slices"

	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// notifications remembers whom it has told: of each node what it showed then, and what it was to offer.
type notifications struct {
	policy       place.Policy
	unresponsive plan.Unresponsive
	unstarted    plan.Unstarted
	notified     map[string]string
}

// next answers the nodes that have not on offer what the plan would have them offer, or of which nothing can be planned
// and everything is closed, as after slurmctld has read slurm.conf anew; and those that are to release a held job. A
// node that has been told is told again when it shows something else, or is to offer something else.
func (c *notifications) next(snapshot plan.Snapshot) (wake []slurm.Node) {
	v := plan.New(
		c.unstarted.Behind(snapshot),
		c.policy,
		func(n slurm.Node) bool { return c.unresponsive.Out(n, snapshot.At) },
	)
	p := v.Plan()
	c.unresponsive.Follow(v, p, "", snapshot.At)
	c.unstarted.Follow(v, p, snapshot.At)
	release := map[string]string{} // by node, the held jobs that it is to release: their slices may be on offer already
	for k, spots := range p.Spots {
		if spots != nil && v.Waiting[k].Releasable(snapshot.At) {
			for _, name := range v.On(spots) {
				release[name] += fmt.Sprint(" release ", v.Waiting[k].ID)
			}
		}
	}
	told := map[string]string{}
	for _, n := range snapshot.Nodes {
		k := v.Member(n.Name)
		why := release[n.Name]
		switch {
		case k >= 0 && plan.Differs(n, v.Counts(p, k)):
			why += fmt.Sprint(v.Counts(p, k))
		case k < 0 && shut(n):
			why += "shut"
		case why == "":
			continue
		}
		why += slurm.FormatGRES(n.Gres) + slurm.FormatGRES(n.GresUsed) + n.Extra
		if told[n.Name] = why; c.notified[n.Name] != why {
			wake = append(wake, n)
		}
	}
	c.notified = told
	return wake
}

// shut reports whether a node of ours has nothing at all on offer.
func shut(n slurm.Node) bool {
	managed := slices.ContainsFunc(n.Gres, func(g slurm.GRES) bool { return g.Name == "mig" })
	return managed && !n.Is("DOWN") && !slices.ContainsFunc(n.Gres, func(g slurm.GRES) bool {
		return g.Name == "mig" && g.Type != slurm.ClosedType && g.Count > 0
	})
}
