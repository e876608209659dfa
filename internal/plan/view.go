package plan

import (
	"slices"
	"time"

	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/slurm"
)

// View is a snapshot in the form that package offer needs.
type View struct {
	*offer.Cluster
	// Members contains the nodes of the plan. A node has the same index in Members as in Cluster.
	Members []slurm.Node
	// Jobs contains the jobs that could start if their slices were offered, in slurmctld's order. If an entry of the
	// queue represents several pending array tasks, Jobs contains one job for each of these tasks. Waiting contains the
	// queue entry of each job.
	Jobs    []*offer.Job
	Waiting []slurm.Waiting

	planner *Planner
	known   []*known        // for each member, what the planner knows of it
	kinds   []place.GPU     // the GPU models; nil if jobs get only the requested profiles
	paused  map[uint32]bool // by user id, see Snapshot
	now     time.Time       // the time of the snapshot
}

// making is the longest time in seconds from the start of a job in slurmctld until the job's slices exist. Destroying
// seven instances and creating one instance takes 2 s on an A100. The remaining 3 s pass before slurmd requests the
// slices.
const making = 5

// overdue is the number of seconds within which a job is expected to end after its time limit has passed. slurmctld
// searches for jobs beyond their time limits every 30 s.
const overdue = 30

// overrun replaces expected ends that have already passed by the time now + overdue.
func overrun(g *place.GPU, now float64) {
	for i := range g.Ends {
		if g.Ends[i] < now {
			g.Ends[i] = now + overdue
		}
	}
}

// Plan makes the plan for the view.
func (v *View) Plan() offer.Plan { return offer.Make(v.Cluster, v.Jobs, false) }

// Member returns the index of the node with the given name among the members, or -1 if the node is not a member.
func (v *View) Member(name string) int {
	return slices.IndexFunc(v.Members, func(n slurm.Node) bool { return n.Name == name })
}

// Offers returns the placements that a plan offers on each GPU of a member.
func (v *View) Offers(p offer.Plan, member int) (offers []mig.Layout) {
	for _, g := range v.Nodes[member] {
		offers = append(offers, p.Offers[g])
	}
	return offers
}

// Counts returns the number of slices that a plan offers on a member under each profile name.
func (v *View) Counts(p offer.Plan, member int) map[string]int {
	n := map[string]int{}
	for _, g := range v.Nodes[member] {
		for i := range p.Offers[g].Indices() {
			n[p.Name(v.Pool.GPU(g).Model, offer.Spot{GPU: g, Placement: i})]++
		}
	}
	return n
}

// On returns the names of the nodes on which the spots are, in the order of the members.
func (v *View) On(spots []offer.Spot) (all []string) {
	var members []int
	for _, s := range spots {
		members = append(members, v.Pool.GPU(s.GPU).Node)
	}
	slices.Sort(members)
	for _, m := range slices.Compact(members) {
		all = append(all, v.Members[m].Name)
	}
	return all
}
