package plan

import (
	"cmp"
	"slices"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// Planner converts successive snapshots into views. It keeps the results that it has computed from records that have
// not changed, which makes it cheap to compute a view after a single event. Its view is always equal to the one that
// New returns for the same snapshot, because the Planner compares every record with the one in the previous snapshot
// and keeps no result that depends on the time. A Planner is not safe for concurrent use.
//
//	changed record        what the Planner recomputes
//	a node's Extra        the state of its GPUs (known.parse)
//	a node                the verdicts on the node for each kind of request (request.find)
//	a waiting job         the job for package offer, and the kind of its request (waitingJob.update)
//	the list of nodes     the cluster (Planner.setCluster)
//
// The memory that a Planner uses is proportional to the number of nodes and jobs in the last snapshot. In addition, a
// Planner stores two bits for each pair of a node and a distinct request, and the distinct sets of nodes of the
// requests (verdicts.go).
type Planner struct {
	settings Settings
	round    uint64 // the number of snapshots so far
	stamps   uint64 // the number of node changes so far

	nodes    map[string]*known
	slots    int // the number of node indices in verdicts
	jobs     map[entryKey]*waitingJob
	requests map[requestKey]*request
	inView   bits // the members of the view, by known.slot
	sets     sharedSets

	cluster *offer.Cluster
	members []*known // the nodes of cluster
	changed uint64   // the last round in which a node's record, or the list of members, changed
	models  []place.GPU
	kinds   []place.GPU
	rooms   *rooms

	// The following lists are part of the last view.
	sorted    []slurm.Node
	on        []slurm.Node
	planned   []*offer.Job
	waiting   []*slurm.Waiting
	submitted []*slurm.Job
}

// NewPlanner returns a Planner that has not yet converted any snapshot.
func NewPlanner(settings Settings) *Planner {
	return &Planner{
		settings: settings,
		nodes:    map[string]*known{},
		jobs:     map[entryKey]*waitingJob{},
		requests: map[requestKey]*request{},
		sets:     sharedSets{},
	}
}

// New converts a snapshot into a view that does not include the nodes for which without returns true. If without is
// nil, all nodes are included.
func New(snapshot Snapshot, settings Settings, without func(slurm.Node) bool) *View {
	return NewPlanner(settings).View(snapshot, without)
}

// View converts a snapshot into a view, as New does. The view is valid until the next call to View.
func (p *Planner) View(snapshot Snapshot, without func(slurm.Node) bool) *View {
	p.round++
	v := &View{planner: p, paused: snapshot.paused, now: snapshot.At, behind: snapshot.behind}
	p.sorted = append(p.sorted[:0], snapshot.Nodes...)
	slices.SortStableFunc(p.sorted, inOrder)
	now := float64(snapshot.At.UnixMilli()) / 1000
	all := make([]*known, len(p.sorted))
	for k := range p.sorted {
		all[k] = p.node(&p.sorted[k])
	}
	p.setJobs(snapshot.Queue.All)
	p.on = p.on[:0]
	for k, n := range all {
		if n.usable && (without == nil || !without(p.sorted[k])) {
			p.on, v.known = append(p.on, p.sorted[k]), append(v.known, n)
		}
	}
	v.Members = p.on
	p.inView = nil
	for _, n := range v.known {
		p.inView.set(n.slot, true)
	}
	p.setCluster(v.known, snapshot, now)
	v.Cluster = p.cluster
	v.Now, v.Making, v.WholeShare = now, making, p.settings.WholeShare
	v.PoweredDown = poweredDown(v.known)
	if !p.settings.Tightest {
		v.kinds = p.kinds
	}
	v.recent(snapshot.Queue.All)
	v.queue(snapshot, p.sorted)
	p.forget()
	return v
}

// inOrder compares two nodes in the order in which slurmctld tries them: those that are powered down come last,
// regardless of their weights (_build_node_list in node_scheduler.c, 22.05.8 and 24.11.5).
func inOrder(a, b slurm.Node) int {
	off := func(n slurm.Node) int {
		if eligible.PoweredDown(n) {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(off(a), off(b)), cmp.Compare(a.Weight, b.Weight))
}

// poweredDown returns the number of members that are powered down. They come last.
func poweredDown(members []*known) (count int) {
	for _, n := range members {
		if n.off {
			count++
		}
	}
	return count
}

// setCluster sets the cluster to the GPUs of the members.
func (p *Planner) setCluster(members []*known, snapshot Snapshot, now float64) {
	if p.cluster == nil || !slices.Equal(members, p.members) || p.resized() {
		var gpus [][]place.GPU
		for k, n := range members {
			n.member, n.loaded = k, n.parsed
			gpus = append(gpus, n.current(snapshot.At, now))
		}
		p.cluster = offer.NewCluster(p.settings.Policy, gpus...)
		p.members, p.changed, p.rooms = members, p.round, nil
	} else {
		for k, n := range members {
			temporary := n.temporary(now)
			if n.loaded == n.parsed && !temporary && !n.adjusted {
				continue
			}
			if !p.cluster.SetGPUs(k, n.current(snapshot.At, now)) {
				p.rooms = nil
			}
			n.loaded = n.parsed
		}
	}
	if p.rooms == nil {
		p.rooms = &rooms{}
		p.setModels()
	}
}

// resized reports whether the number of GPUs of any member has changed.
func (p *Planner) resized() bool {
	return slices.ContainsFunc(p.members, func(n *known) bool {
		return len(n.parsed.GPUs) != len(p.cluster.Nodes[n.member])
	})
}

// setModels sets the list of GPU models and the list of distinct combinations of a GPU model and the placements that
// can be offered on it.
func (p *Planner) setModels() {
	p.models, p.kinds = nil, []place.GPU{}
	for k := range p.cluster.Pool.Len() {
		g := p.cluster.Pool.GPU(k)
		model := func(o place.GPU) bool { return o.Model == g.Model }
		kind := func(o place.GPU) bool { return model(o) && o.Offerable == g.Offerable }
		if g.Model == nil || slices.ContainsFunc(p.kinds, kind) {
			continue
		}
		if !slices.ContainsFunc(p.models, model) {
			p.models = append(p.models, place.GPU{Model: g.Model, Offerable: g.Offerable})
		}
		p.kinds = append(p.kinds, place.GPU{Model: g.Model, Offerable: g.Offerable})
	}
	for _, j := range p.jobs {
		j.sized = false
	}
}

// forget removes the nodes, jobs and requests that are not in the last snapshot, as well as the list of running jobs.
func (p *Planner) forget() {
	clear(p.submitted)
	clear(p.sets)
	for name, n := range p.nodes {
		clear(n.jobs)
		n.jobs = n.jobs[:0]
		if n.round != p.round {
			delete(p.nodes, name)
		}
	}
	if 2*len(p.nodes) < p.slots { // give the remaining nodes new indices
		p.slots = 0
		for _, n := range p.nodes {
			n.slot = p.slots
			p.slots++
		}
		clear(p.requests)
		clear(p.jobs)
	}
	for id, j := range p.jobs {
		if j.round != p.round {
			delete(p.jobs, id)
		}
	}
	for key, r := range p.requests {
		if r.round != p.round {
			delete(p.requests, key)
		}
	}
}
