package plan

import (
	"slices"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// View is a snapshot in the form that package offer needs.
type View struct {
	*offer.Cluster
	// Members lists the plan's nodes, with the same indices as in Cluster.
	Members []slurm.Node
	// Jobs lists the jobs that could start if their slices were offered, in slurmctld's order. A queue entry that
	// represents several pending array tasks becomes one job for each of them. Waiting holds each job's queue entry.
	Jobs    []*offer.Job
	Waiting []*slurm.Waiting

	planner *Planner
	known   []*known        // the planner's data about each member
	kinds   []place.GPU     // the GPU models; nil if jobs are assigned only the requested profiles
	paused  map[uint32]bool // by user id; see Snapshot
	now     time.Time       // the time of the snapshot

	behind func(slurm.Waiting) bool // see Snapshot
}

// Behind reports whether the k-th job is planned after all others, because slurmctld has not started it even though its
// slices were offered.
func (v *View) Behind(k int) bool { return v.behind != nil && v.behind(*v.Waiting[k]) }

// making is the maximum time, in seconds, from when slurmctld starts a job until the job's slices exist. Destroying
// seven instances and creating one takes 2 s on an A100; the other 3 s allow for the time until slurmd requests the
// slices.
const making = 5

// overdue is the number of seconds after its time limit at which a job is expected to end. slurmctld checks for jobs
// that have exceeded their time limits every 30 s.
const overdue = 30

// overrun replaces expected ends that have already passed with now + overdue.
func overrun(g *place.GPU, now float64) {
	for i := range g.Ends {
		if g.Ends[i] < now {
			g.Ends[i] = now + overdue
		}
	}
}

// Plan makes the plan for the view.
func (v *View) Plan() offer.Plan { return offer.Make(v.Cluster, v.Jobs, false) }

// FirstWait returns the index of the first job that must wait in a plan, and the time in seconds until its slices are
// expected to be free. ok is false if there is no such job or the time is unknown.
func (v *View) FirstWait(made offer.Plan) (k int, seconds float64, ok bool) {
	r := made.Reserved
	if r == nil || v.unix(r.At) == 0 {
		return 0, 0, false
	}
	return r.Job, r.At - v.Now, true
}

// Member returns the index of the node with the given name among the members, or -1 if the node is not a member.
func (v *View) Member(name string) int {
	return slices.IndexFunc(v.Members, func(n slurm.Node) bool { return n.Name == name })
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

// On returns the names of the nodes that contain these spots, in the order of the members.
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
