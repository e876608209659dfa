package publish

import (
	"cmp"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// nextOn returns the value of state.PlanPart.Next for a member of a plan. It is empty if the first job without spots
// cannot use a single released slice of the member, because the member does not accept the job, or because the job
// requests several slices or nodes, has equivalent profiles, should be given a larger slice than it requests, or is a
// component of a het job.
func nextOn(v *plan.View, all offer.Plan, me int) (n state.Next) {
	for k, spots := range all.Spots {
		if spots != nil {
			continue
		}
		w := v.Waiting[k]
		wants := v.Jobs[k].Wants
		if len(wants) != 1 || wants[0].Count != 1 || wants[0].Alternatives != nil || wants[0].Grown != "" ||
			prefersLarger(v, all, me, wants[0]) || w.NumNodes > 1 || w.HetJob != 0 ||
			n.Jobs > 0 && wants[0].Profile != n.Profile || !eligible.Accepts(v.Members[me], *w) {
			break
		}
		n = state.Next{Profile: wants[0].Profile, Jobs: n.Jobs + 1}
	}
	return n
}

// prefersLarger reports whether a waiting job should be given a larger slice than it requests on one of a member's
// GPUs.
func prefersLarger(v *plan.View, all offer.Plan, me int, w offer.Want) bool {
	return len(w.Sizes) > 0 && slices.ContainsFunc(v.Nodes[me], func(g int) bool {
		return all.PrefersLarger(w, v.Pool.GPU(g).Model)
	})
}

// undercounted reports whether slurmctld counts fewer slices of a profile as used than the running jobs on this node
// hold. After a restart, slurmctld may not count the slices of running jobs (24.11.5). If the agent then offered a
// released slice again, the pass would count the slice as both used and offered. The caller holds p.node.
func (p *Publisher) undercounted(node slurm.Node) bool {
	held := map[string]int{}
	for job, l := range p.Node.Leases {
		if !p.Node.Here[job].Holds() {
			continue
		}
		for _, s := range l.Slices {
			held[cmp.Or(s.AdvertisedAs, s.Profile)]++
		}
	}
	used := node.GresUsed.Profiles()
	for profile, n := range held {
		if used[profile]-p.status.Excess[profile] < n {
			return true
		}
	}
	return false
}
