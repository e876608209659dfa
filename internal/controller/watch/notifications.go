package watch

import (
	"fmt"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// notifications determines the notification set. notified maps the name of each notified node to a string that contains
// its GRES and Extra at the time of the notification, and the reason for the notification.
type notifications struct {
	settings     plan.Settings
	planner      *plan.Planner // retains the data that has not changed between two snapshots
	unresponsive plan.Unresponsive
	unstarted    plan.Unstarted
	notified     map[string]string
}

// plan makes the plan for a snapshot, as an agent does.
func (c *notifications) plan(snapshot plan.Snapshot) (*plan.View, offer.Plan) {
	if c.planner == nil {
		c.planner = plan.NewPlanner(c.settings)
	}
	v := c.planner.View(
		c.unstarted.Reorder(snapshot),
		func(n slurm.Node) bool { return c.unresponsive.LeftOut(n, snapshot.At) },
	)
	p := v.Plan()
	c.unresponsive.Record(v, p, "", snapshot.At)
	c.unstarted.Record(v, p, snapshot.At)
	return v, p
}

// due returns the nodes to notify (see the package comment). A node that has already been notified is included only if
// its GRES, its Extra or the reason has changed. A node whose new part is deferred until the next heartbeat must
// publish the offers of its current part.
func (c *notifications) due(snapshot plan.Snapshot, v *plan.View, p offer.Plan, waits deferred) (due []slurm.Node) {
	release := map[string]string{} // for each node, the held jobs to release; their slices may already be offered
	for k, spots := range p.Spots {
		if spots != nil && eligible.Releasable(*v.Waiting[k], snapshot.At) {
			on := v.On(spots)
			if allPoweredDown(v, on) { // partOf assigns the job to the first member
				if !offered(v, on, *v.Waiting[k]) {
					continue
				}
				on = []string{v.Members[0].Name}
			}
			for _, name := range on {
				release[name] += fmt.Sprint(" release ", v.Waiting[k].ID)
			}
		}
	}
	notified := map[string]string{}
	for _, n := range snapshot.Nodes {
		k := v.Member(n.Name)
		why := release[n.Name]
		offers, waiting := waits[n.Name]
		switch {
		case n.Is("POWERED_DOWN"): // no agent is running on the node
			continue
		case waiting && offers == nil && why == "":
			continue // the agent publishes the start of a job
		case k >= 0 && plan.Differs(n, countsOn(v, p, k, waits)):
			why += fmt.Sprint(countsOn(v, p, k, waits))
		case k < 0 && shut(n):
			why += "shut"
		case why == "":
			continue
		}
		why += n.Gres.String() + n.GresUsed.String() + n.Extra
		if notified[n.Name] = why; c.notified[n.Name] != why {
			due = append(due, n)
		}
	}
	c.notified = notified
	return due
}

// countsOn returns the number of slices of each profile that a member must offer.
func countsOn(v *plan.View, p offer.Plan, member int, waits deferred) map[string]int {
	offers, ok := waits[v.Members[member].Name]
	if !ok {
		return v.Counts(p, member)
	}
	n := map[string]int{}
	for _, o := range offers {
		n[name(o)]++
	}
	return n
}

// shut reports whether n is managed, is up and offers no slices.
func shut(n slurm.Node) bool {
	return n.Managed() && !n.Is("DOWN") && !slices.ContainsFunc(n.Gres, func(g slurm.GRES) bool {
		return g.Name == "mig" && g.Type != slurm.ClosedType && g.Count > 0
	})
}
