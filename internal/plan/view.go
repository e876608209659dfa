package plan

import (
	"cmp"
	"slices"
	"time"

	"caelum/internal/eligible"
	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/slurm"
	"caelum/internal/tags"
)

// View is a snapshot in the form that package offer needs.
type View struct {
	*offer.Cluster
	// Members contains the nodes of the plan. A node has the same index in Members as in Cluster.
	Members   []slurm.Node
	since     []time.Time                     // for each member, the time at which the member's offers last changed
	empty     *offer.Cluster                  // Cluster with empty GPUs
	kinds     []place.GPU                     // the GPU models; nil if jobs get only the requested profiles
	running   map[string][]occupant           // by node, ordered by expected end
	paused    map[uint32]bool                 // by user id, see Snapshot
	nodeSets  map[string]nodeSets             // by nodesKey
	firstLike []int                           // for each member, the first member with the same GPUs
	emptyRoom map[string]map[int][]offer.Spot // spots for the slices on empty GPUs, by request and first member
	// Jobs contains the jobs that could start if their slices were offered, in slurmctld's order. If an entry of the
	// queue represents several pending array tasks, Jobs contains one job for each of these tasks. Waiting contains the
	// queue entry of each job.
	Jobs    []*offer.Job
	Waiting []slurm.Waiting
}

// making is the longest time in seconds from the start of a job in slurmctld until the job's slices exist. Destroying
// seven instances and creating one instance takes 2 s on an A100. The remaining 3 s pass before slurmd requests the
// slices.
const making = 5

// overdue is the number of seconds within which a job is expected to end after its time limit has passed. slurmctld
// searches for jobs beyond their time limits every 30 s.
const overdue = 30

// New converts a snapshot into a view. New excludes the nodes for which without returns true. If without is nil, New
// includes all nodes.
func New(snapshot Snapshot, settings Settings, without func(slurm.Node) bool) *View {
	v := &View{}
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	slices.SortStableFunc(snapshot.Nodes, func(a, b slurm.Node) int { return cmp.Compare(a.Weight, b.Weight) })
	now := float64(snapshot.At.UnixMilli()) / 1000
	on := runningOn(snapshot.Queue.All, snapshot.At)
	var gpus [][]place.GPU
	for _, n := range snapshot.Nodes {
		text := StateIn(n.Extra)
		if text == "" || !eligible.Schedulable(n) || n.Unregistered || without != nil && without(n) {
			continue
		}
		state, err := Parse(text)
		if err != nil {
			continue
		}
		setNVLink(state.GPUs, n.Extra)
		fillEnds(state.GPUs, on[n.Name])
		for k := range state.GPUs {
			overrun(&state.GPUs[k], now)
		}
		v.Members, v.since, gpus = append(v.Members, n), append(v.since, state.Since), append(gpus, state.GPUs)
	}
	v.Cluster = offer.NewCluster(settings.Policy, gpus...)
	v.Now, v.Making, v.WholeShare = now, making, settings.WholeShare
	if !settings.Tightest {
		v.kinds = kinds(v.Pool)
	}
	v.recent(snapshot.Queue.All)
	v.running, v.paused = occupants(snapshot.Queue.All, snapshot.At), snapshot.paused
	v.queue(snapshot)
	return v
}

// overrun replaces expected ends that have already passed by the time now + overdue.
func overrun(g *place.GPU, now float64) {
	for i := range g.Ends {
		if g.Ends[i] < now {
			g.Ends[i] = now + overdue
		}
	}
}

// recent computes the profile weights, the mean duration and the expected arrivals from all jobs that slurmctld lists.
func (v *View) recent(all []slurm.Job) {
	jobs := slices.DeleteFunc(slices.Clone(all), func(j slurm.Job) bool { return len(j.SlicesPerNode()) == 0 })
	slices.SortStableFunc(
		jobs,
		func(a, b slurm.Job) int { return cmp.Or(a.Submit.Compare(b.Submit), cmp.Compare(a.ID, b.ID)) },
	)
	var recent place.Recent
	var earlier []offer.Submission
	for _, j := range jobs {
		recent.Add(place.Request{Profile: j.SlicesPerNode()[0].Type, Duration: seconds(tags.Expected(j))})
		at := float64(j.Submit.UnixMilli()) / 1000
		earlier = append(earlier, offer.Submission{At: at, RunTime: tags.Learned(j).Seconds()})
	}
	v.Arrivals = offer.ExpectedArrivals(earlier, v.Now)
	v.Weights, v.MeanDuration = recent.Weights(), recent.MeanDuration()
	if v.kinds != nil {
		v.setSpeculative(jobs)
	}
}

// queue sets Jobs and Waiting in the order of the queue. The nodes of the snapshot are in slurmctld's order.
func (v *View) queue(snapshot Snapshot) {
	slots := 0
	for _, n := range v.Members {
		for _, g := range n.Gres {
			if g.Name == "gpu" {
				slots += g.Count
			}
		}
	}
	held := heldOn(snapshot.Queue.All)
	for _, waiting := range startable(snapshot) {
		jobs, wants := make([]*offer.Job, len(waiting)), false
		for k, w := range waiting {
			jobs[k] = Job(w)
			jobs[k].Waited = max(0, snapshot.At.Sub(eligible.WaitsSince(w)).Seconds())
			wants = wants || len(jobs[k].Wants) > 0
		}
		if !wants {
			continue
		}
		for k, w := range waiting {
			if len(jobs[k].Wants) > 0 {
				v.setNodes(jobs[k], w, held)
			} else {
				v.setNodesWithoutSlices(jobs[k], w, snapshot.Nodes)
			}
		}
		if !v.feasible(jobs) { // a job that can never run would block the requested profile for other jobs
			continue
		}
		for k, j := range jobs {
			if len(j.Wants) == 1 {
				j.Wants[0].Sizes = Sizes(waiting[k].Job, v.kinds)
			}
			if len(j.EligibleNodes) == len(v.Members) && len(j.Wants) > 0 && len(j.DeferredNodes) == 0 {
				j.EligibleNodes = nil
			}
		}
		// At most as many tasks of an array can start as the cluster has slots.
		for range min(waiting[0].Elements, slots) {
			for k := range jobs {
				j := *jobs[k]
				if waiting[0].Priority == 0 {
					j.SingletonKey = uint64(waiting[0].UID) + 1
				}
				v.Jobs, v.Waiting = append(v.Jobs, &j), append(v.Waiting, waiting[k])
			}
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

// On returns the names of the nodes on which the spots are.
func (v *View) On(spots []offer.Spot) (all []string) {
	for m, gpus := range v.Nodes {
		if slices.ContainsFunc(spots, func(s offer.Spot) bool { return slices.Contains(gpus, s.GPU) }) {
			all = append(all, v.Members[m].Name)
		}
	}
	return all
}
