package plan

import (
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// findNodes sets the members on which a job can run. d holds the verdicts from the last call for an equal request.
// temporary is true if the members depend on more than the job's request and the nodes' records.
func (v *View) findNodes(job *offer.Job, w *slurm.Waiting, d *verdicts) (temporary bool) {
	sized := tags.Sized(*w.Job)
	if sized {
		job.Wants[0].Alternatives = v.equivalentProfiles(job.Wants[0].Needed())
	}
	add := func(k int) {
		job.EligibleNodes = append(job.EligibleNodes, k)
		if d.deferred.has(v.known[k].slot) {
			job.DeferredNodes = append(job.DeferredNodes, k)
			v.setLacking(job, w, k)
		}
	}
	var small []int
	for k, n := range v.known {
		if !d.knows(n) {
			accepts := eligible.Accepts(n.record, *w)
			d.accepts.set(n.slot, accepts)
			d.deferred.set(n.slot, accepts && eligible.DeferReason(n.record, *w, n.parsed.Since) != "")
		}
		if !d.accepts.has(n.slot) || sized && v.forgotten(k, job.Wants[0].Profile) {
			continue
		}
		if sized && v.tooSmall(k, job.Wants[0].Needed()) {
			small = append(small, k)
			continue
		}
		add(k)
	}
	if len(job.EligibleNodes) == 0 { // the job asks for these nodes, for example with --constraint
		for _, k := range small {
			add(k)
		}
	}
	d.stamp, d.members = v.planner.stamps, v.planner.inView
	temporary = sized || len(job.DeferredNodes) > 0
	if w.NumNodes > 1 {
		v.oneAlternative(job, w.Features)
	}
	return temporary
}

// oneAlternative restricts a job on several nodes to the members that satisfy one alternative of its constraint
// ([a|b]): the one with the most members on which the job could start now or, if several have equally many, on which
// it could run.
func (v *View) oneAlternative(job *offer.Job, c slurm.Constraint) {
	var best []int
	most := 0
	for k := range c.AnyOf {
		has := slices.DeleteFunc(
			slices.Clone(job.EligibleNodes),
			func(m int) bool { return !eligible.MeetsAlternative(c, k, v.Members[m].Features) },
		)
		later := 0
		for _, m := range job.DeferredNodes {
			if slices.Contains(has, m) {
				later++
			}
		}
		if rank := (len(has)-later)*(len(v.Members)+1) + len(has); rank > most && len(has) >= job.Nodes {
			best, most = has, rank
		}
	}
	if len(c.AnyOf) > 0 {
		other := func(m int) bool { return !slices.Contains(best, m) }
		job.EligibleNodes = best
		job.DeferredNodes = slices.DeleteFunc(job.DeferredNodes, other)
		job.NoOfferNodes = slices.DeleteFunc(job.NoOfferNodes, other)
	}
}

// setNodesWithoutSlices sets the members on which a component that requests no slices is allowed to start. In
// slurmctld's order of nodes, all of these members come before the first node outside the plan on which the component
// could start now.
func (v *View) setNodesWithoutSlices(job *offer.Job, w *slurm.Waiting, nodes []slurm.Node) {
	job.EligibleNodes = []int{}
	for _, n := range nodes {
		if !eligible.Accepts(n, *w) {
			continue
		}
		later := eligible.DeferReason(n, *w, time.Time{}) != ""
		switch k := v.planner.nodes[n.Name].member; {
		case k < len(v.known) && v.known[k] == v.planner.nodes[n.Name]:
			job.EligibleNodes = append(job.EligibleNodes, k)
			if later {
				job.DeferredNodes = append(job.DeferredNodes, k)
			}
		case !later:
			job.OutsideCluster = true
			return
		}
	}
}

// equivalentProfiles returns the names of the equivalent profiles on the cluster's other GPU models.
func (v *View) equivalentProfiles(profile string) (names []string) {
	for _, g := range v.planner.models {
		if name, ok := g.Model.EquivalentProfile(profile, g.Offerable); ok && name != profile &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// tooSmall reports whether a member has only GPUs without MIG, and none has the memory in the profile's name. The job
// may still fit, because its peak is between two profiles or unknown.
func (v *View) tooSmall(member int, profile string) bool {
	for _, k := range v.Nodes[member] {
		if b := v.Pool.GPU(k).Model; b != nil && (!b.WithoutMIG() || b.Holds(profile)) {
			return false
		}
	}
	return true
}

// forgotten reports whether slurmctld's used count of a profile on a member is lower than the number of slices of this
// profile that jobs hold there. It always returns false for profiles of the member's own GPU model. When slurmctld
// restarts, it loses the used counts of types that slurm.conf does not list for the node. When a job that holds slices
// of such a type ends, slurmctld subtracts them from the count of the slices that other jobs use (22.05.8). Until the
// counts agree again, the member offers no further slices under the profile's name.
func (v *View) forgotten(member int, profile string) bool {
	for _, g := range v.Nodes[member] {
		if b := v.Pool.GPU(g).Model; b != nil {
			if _, own := b.ProfileIndex(profile); own {
				return false
			}
		}
	}
	used := 0
	for _, g := range v.Members[member].GresUsed {
		if g.Name == "mig" && g.Type == profile {
			used += g.Count
		}
	}
	return used < v.known[member].held(profile)
}
