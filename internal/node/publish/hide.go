package publish

import "caelum/internal/node/state"

// slurmctld's backfill can plan a waiting job on slices that are still in use, because it uses the total counts of a
// node. It then keeps the whole node for that job, and starts no job on the offers that might last longer, although the
// agents' plans already keep the room of the first waiting job free. If a node offers slices, the agent therefore hides
// the profiles of which it offers none: it publishes a total of 0 for them. slurmctld accepts a total below the used
// count, and cannot plan a job on such a profile. The agent hides no profile
//
//   - if the node offers nothing: slurmctld could not start jobs on its slices anyway, and its reservation also
//     protects CPUs and memory;
//   - if slurmctld preempts jobs, because it could not preempt a job for one that requests a hidden profile.

// hides reports whether the agent hides a profile that its node has.
func (d *nodePlan) hides(profile string) bool { return d.hiding && d.offers[profile] == 0 }

// setHiding sets d.hiding, once the offers are known. preempts is true if slurmctld preempts jobs.
func (d *nodePlan) setHiding(preempts bool) {
	for _, n := range d.offers {
		d.hiding = d.hiding || n > 0 && !preempts
	}
	if d.hides(d.next.Profile) {
		d.next = state.Next{} // slurmctld would not count a released slice as free
	}
}

// hide sets the totals of hidden profiles to 0.
func (d *nodePlan) hide(totals map[string]int) {
	for profile := range totals {
		if d.hides(profile) {
			totals[profile] = 0
		}
	}
}
