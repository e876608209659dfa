package agent

import (
	"caelum/internal/api"
	"caelum/internal/eligible"
	"caelum/internal/offer"
	"caelum/internal/plan"
	"caelum/internal/slurm"
	"cmp"
	"slices"
)

// If the first waiting job requests a slice of the profile that is being released, no new plan is needed, because
// slurmctld counts the released slice as free when the epilog ends. The agent offers the slice again while it serves
// the epilog, and does not wait for slurmctld. A pass follows, as after any other change.

// next describes the first jobs in the queue for which the plan in force contains no free spots. Each of these jobs
// requests one slice of the same profile.
type next struct {
	profile string
	jobs    int // the number of consecutive jobs of this kind
}

// nextOn returns next for a member of a plan. It is empty unless the first job without a spot requests a single slice
// of a profile that the member offers under the profile's own name, and the member accepts the job.
func nextOn(v *plan.View, all offer.Plan, me int) (n next) {
	for k, spots := range all.Spots {
		if spots != nil {
			continue
		}
		w := v.Waiting[k]
		wants := v.Jobs[k].Wants
		if len(wants) != 1 || wants[0].Count != 1 || wants[0].Alternatives != nil || w.NumNodes > 1 || w.HetJob != 0 ||
			n.jobs > 0 && wants[0].Profile != n.profile || !eligible.Accepts(v.Members[me], w) {
			break
		}
		n = next{wants[0].Profile, n.jobs + 1}
	}
	return n
}

// undercounted reports whether slurmctld counts fewer slices of a profile as used than the running jobs hold here.
// After its restart, slurmctld may have forgotten the slices of running jobs (24.11.5). If the agent then offered a
// released slice again during a pass, the pass would count this slice both as used and as offered. The caller holds
// p.mu.
func (p *publisher) undercounted(node slurm.Node) bool {
	held := map[string]int{}
	for job, l := range p.leases {
		if !p.here[job].Holds() {
			continue
		}
		for _, s := range l.Slices {
			held[cmp.Or(s.AdvertisedAs, s.Profile)]++
		}
	}
	used := node.GresUsed.Profiles()
	for profile, n := range held {
		if used[profile]-p.status.excess[profile] < n {
			return true
		}
	}
	return false
}

// offerAgain offers the slice of a lease that has just been dropped, if the next waiting job requests such a slice. It
// reports whether it has offered the slice. The caller holds n.mu.
func (n *node) offerAgain(lease api.Lease) bool {
	if len(lease.Slices) != 1 || n.next.jobs == 0 || len(n.offers) != len(n.cards) {
		return false
	}
	s := lease.Slices[0]
	c := n.cards[s.GPU]
	if s.AdvertisedAs != "" || s.Profile != n.next.profile || c.Problem != "" {
		return false
	}
	p, ok := c.Model.Placement(s.Profile, s.Start)
	if in := c.ours[p]; !ok || in == nil || in.UUID != s.UUID || !in.idle() || !c.Model.Fits(n.offers[s.GPU], p) {
		return false
	}
	n.offers = slices.Clone(n.offers) // a copy, because the plan in force still uses the original
	n.offers[s.GPU] = n.offers[s.GPU].With(p)
	n.next.jobs--
	return true
}
