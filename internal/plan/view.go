package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"caelum/internal/mig"
	"caelum/internal/offer"
	"caelum/internal/place"
	"caelum/internal/slurm"
)

// Snapshot holds slurmctld's answers to one reading: the nodes first, then the queue.
type Snapshot struct {
	Nodes []slurm.Node
	Queue slurm.Queue
	At    time.Time // the time of the reading, by the clock of the host that read

	unkept map[uint32]bool // users for whose jobs no room is reserved while they lack something other than slices
}

// ready reports whether a waiting job could start if it had its slices: slurmctld would start it, or an agent would
// release it.
func (s Snapshot) ready(w slurm.Waiting) bool {
	return (w.Eligible() || w.Releasable(s.At)) && s.Queue.LacksLicense(w) == ""
}

// View is a snapshot in the form that package offer needs.
type View struct {
	*offer.Cluster
	// Members are the nodes in the plan, by their index in the cluster.
	Members []slurm.Node
	since   []time.Time                     // by member: since when its offers have been what they are
	bare    *offer.Cluster                  // the same GPUs, all empty
	running map[string][]occupant           // by node, in the order of their ends
	unkept  map[uint32]bool                 // users, see Snapshot
	like    []int                           // by member: the first member that has the same GPUs
	could   map[string]map[int][]offer.Spot // by request and first member: where the slices fit on empty GPUs
	// Jobs are the jobs that could start if their slices were on offer, in slurmctld's order. Waiting has the record of
	// each. The pending tasks of an array that are one entry in Waiting of the snapshot are several jobs here.
	Jobs    []*offer.Job
	Waiting []slurm.Waiting
}

// making is the longest time from slurmctld's start of a job until its slices exist, in seconds. Destroying seven
// instances and creating one takes 2 s on an A100. The rest is for the work of slurmd before it asks for the slices.
const making = 5

// overdue is after how many seconds a job is expected to end that should have ended already: slurmctld checks for such
// jobs every 30 s.
const overdue = 30

// New makes a view of a snapshot. It leaves out the nodes that without selects; nil selects none.
func New(snapshot Snapshot, policy place.Policy, without func(slurm.Node) bool) *View {
	v := &View{}
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	slices.SortStableFunc(snapshot.Nodes, func(a, b slurm.Node) int { return cmp.Compare(a.Weight, b.Weight) })
	now := float64(snapshot.At.UnixMilli()) / 1000
	on := runningOn(snapshot.Queue.All, snapshot.At)
	var gpus [][]place.GPU
	for _, n := range snapshot.Nodes {
		text := In(n.Extra)
		if text == "" || !n.Schedulable() || n.Unregistered || without != nil && without(n) {
			continue
		}
		state, err := Parse(text)
		if err != nil {
			continue
		}
		fillEnds(state.GPUs, on[n.Name])
		for k := range state.GPUs {
			overrun(&state.GPUs[k], now)
		}
		v.Members, v.since, gpus = append(v.Members, n), append(v.since, state.Since), append(gpus, state.GPUs)
	}
	v.Cluster = offer.NewCluster(policy, gpus...)
	v.Now, v.Making = now, making
	v.recent(snapshot.Queue.All)
	v.running, v.unkept = occupants(snapshot.Queue.All, v.Now), snapshot.unkept
	v.queue(snapshot)
	return v
}

// overrun sets the ends that have passed already to a time shortly after now.
func overrun(g *place.GPU, now float64) {
	for i := range g.Ends {
		if g.Ends[i] < now {
			g.Ends[i] = now + overdue
		}
	}
}

// recent sets the weights of the profiles and the mean duration from the requests of all jobs that slurmctld still
// knows.
func (v *View) recent(all []slurm.Job) {
	jobs := slices.DeleteFunc(slices.Clone(all), func(j slurm.Job) bool { return len(j.SlicesPerNode()) == 0 })
	slices.SortStableFunc(
		jobs,
		func(a, b slurm.Job) int { return cmp.Or(a.Submit.Compare(b.Submit), cmp.Compare(a.ID, b.ID)) },
	)
	var recent place.Recent
	for _, j := range jobs {
		recent.Asked(place.Request{Profile: j.SlicesPerNode()[0].Type, Duration: seconds(j.Expected())})
	}
	v.Weights, v.MeanDuration = recent.Weights(), recent.MeanDuration()
}

// seconds returns a duration in seconds; +Inf for 0.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.Inf(1)
	}
	return d.Seconds()
}

// queue sets Jobs and Waiting in the order of the snapshot. The nodes of the snapshot are in slurmctld's order.
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
		if !v.fit(jobs) { // jobs that never fit would keep their profiles from other jobs
			continue
		}
		for _, j := range jobs {
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

// setNodes sets the members on which a job can run. held is the result of heldOn.
func (v *View) setNodes(job *offer.Job, w slurm.Waiting, held map[string]map[string]int) {
	if w.Sized() {
		job.Wants[0].Alternatives = v.equivalentProfiles(job.Wants[0].Profile)
	}
	for k, n := range v.Members {
		if !n.Accepts(w) || w.Sized() && v.forgotten(k, job.Wants[0].Profile, held[n.Name]) {
			continue
		}
		job.EligibleNodes = append(job.EligibleNodes, k)
		if n.DeferReason(w, v.since[k]) != "" {
			job.DeferredNodes = append(job.DeferredNodes, k)
			v.setLacking(job, w, k)
		}
	}
	if w.NumNodes > 1 {
		v.oneAlternative(job, w.Features)
	}
}

// oneAlternative restricts a job on several nodes to the members that satisfy the same alternative of its constraint
// ([a|b]). It chooses the alternative with the most members on which the job could start now. Among equals, it chooses
// the one with the most members on which the job could run.
func (v *View) oneAlternative(job *offer.Job, c slurm.Constraint) {
	var best []int
	most := 0
	for k := range c.Alternatives() {
		has := slices.DeleteFunc(
			slices.Clone(job.EligibleNodes),
			func(m int) bool { return !c.Alternative(k, v.Members[m].Features) },
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
	if c.Alternatives() > 0 {
		other := func(m int) bool { return !slices.Contains(best, m) }
		job.EligibleNodes = best
		job.DeferredNodes = slices.DeleteFunc(job.DeferredNodes, other)
		job.NoOfferNodes = slices.DeleteFunc(job.NoOfferNodes, other)
	}
}

// setNodesWithoutSlices sets the members on which a component without slices may start. These are the members that
// slurmctld tries before any other node on which the component could start now.
func (v *View) setNodesWithoutSlices(job *offer.Job, w slurm.Waiting, nodes []slurm.Node) {
	job.EligibleNodes = []int{}
	for _, n := range nodes {
		if !n.Accepts(w) {
			continue
		}
		later := n.DeferReason(w, time.Time{}) != ""
		switch k := v.Member(n.Name); {
		case k >= 0:
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

// equivalentProfiles returns, for each GPU model of the cluster that does not have this profile, the name of the
// equivalent profile.
func (v *View) equivalentProfiles(profile string) (names []string) {
	seen := map[*mig.Model]bool{}
	for g := range v.Pool.Len() {
		b := v.Pool.GPU(g).Model
		if b == nil || seen[b] {
			continue
		}
		seen[b] = true
		if name, ok := b.EquivalentProfile(profile, v.Pool.GPU(g).Offerable); ok && name != profile &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// heldOn returns the slices of gres/mig that jobs hold according to slurmctld's job records, by node and type.
func heldOn(jobs []slurm.Job) map[string]map[string]int {
	held := map[string]map[string]int{}
	for _, j := range jobs {
		if !j.Holds() {
			continue
		}
		for _, n := range j.Nodes {
			if held[n] == nil {
				held[n] = map[string]int{}
			}
			for _, g := range j.SlicesPerNode() {
				held[n][g.Type] += g.Count
			}
		}
	}
	return held
}

// forgotten reports whether slurmctld counts fewer slices of a profile as used on a member than jobs hold there, where
// the profile is that of another GPU model. After a restart, slurmctld forgets the used count of types that slurm.conf
// does not give the node. When such a job ends, slurmctld then subtracts its slices from those of the next job
// (22.05.8). Until the counts agree again, nothing more is offered under that name.
func (v *View) forgotten(member int, profile string, held map[string]int) bool {
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
	return used < held[profile]
}

// startable returns the waiting jobs that could start if they had their slices, in order. Jobs that start together form
// a group. All components of a het job start at the same time, or none does. Their place is that of the last component
// that is not held, because backfill considers the het job there with bf_hetjob_prio=min (backfill.c, 22.05.8). If all
// components are held, their place is that of the first. Slices that were offered to a het job earlier would go to the
// jobs between its components, and the het job would keep GPUs idle without getting them.
func startable(snapshot Snapshot) (all [][]slurm.Waiting) {
	het := snapshot.hetJobs()
	order := snapshot.Queue.InOrder()
	place := map[*hetJob]uint32{} // the component at whose place the het job is planned
	for _, w := range order {
		if h := het[w.HetJob]; h != nil && (w.Priority > 0 || place[h] == 0) {
			place[h] = w.ID
		}
	}
	for _, w := range order {
		switch h := het[w.HetJob]; {
		case w.HetJob == 0 && snapshot.ready(w):
			all = append(all, []slurm.Waiting{w})
		case h != nil && h.whole && place[h] == w.ID:
			all = append(all, h.pending)
		}
	}
	return all
}

// Job returns the needs of a waiting job in the form of package offer.
func Job(w slurm.Waiting) *offer.Job {
	j := &offer.Job{
		ID:        w.ID,
		Het:       w.HetJob,
		Nodes:     max(w.NumNodes, 1),
		RunTime:   seconds(w.Expected()),
		TimeLimit: seconds(w.TimeLimit),
	}
	for _, g := range w.SlicesPerNode() {
		if g.Type != "" && g.Type != slurm.ClosedType {
			j.Wants = append(j.Wants, offer.Want{Profile: g.Type, Count: g.Count})
		}
	}
	return j
}

// Plan makes the plan of the view.
func (v *View) Plan() offer.Plan { return offer.Make(v.Cluster, v.Jobs, false) }

// Member returns a node's index among the members; -1 if the node is not a member.
func (v *View) Member(name string) int {
	return slices.IndexFunc(v.Members, func(n slurm.Node) bool { return n.Name == name })
}

// Offers returns the placements that a plan offers on a member, by its GPUs.
func (v *View) Offers(p offer.Plan, member int) (offers []mig.Layout) {
	for _, g := range v.Nodes[member] {
		offers = append(offers, p.Offers[g])
	}
	return offers
}

// Counts returns how many slices a plan offers on a member, by the name under which they are offered.
func (v *View) Counts(p offer.Plan, member int) map[string]int {
	n := map[string]int{}
	for _, g := range v.Nodes[member] {
		for i := range p.Offers[g].Indices() {
			n[p.Name(v.Pool.GPU(g).Model, offer.Spot{GPU: g, Placement: i})]++
		}
	}
	return n
}

// On returns the names of the nodes of these spots.
func (v *View) On(spots []offer.Spot) (all []string) {
	for m, gpus := range v.Nodes {
		if slices.ContainsFunc(spots, func(s offer.Spot) bool { return slices.Contains(gpus, s.GPU) }) {
			all = append(all, v.Members[m].Name)
		}
	}
	return all
}

// Controller is the part of slurmctld that Read needs. *slurm.Client implements it.
type Controller interface {
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Queue(ctx context.Context) (slurm.Queue, error)
}

// Read reads the nodes from slurmctld, then the jobs. The order matters to an agent: a job that starts between the two
// is then among the jobs. In the other order, it would appear only in GresUsed, and its slice would be offered again.
func Read(ctx context.Context, ctl Controller, now func() time.Time) (snapshot Snapshot, err error) {
	if snapshot.Nodes, err = ctl.Nodes(ctx); err != nil {
		return snapshot, err
	}
	snapshot.Queue, err = ctl.Queue(ctx)
	snapshot.At = now()
	return snapshot, err
}

// fit reports whether jobs that start at the same time could ever start: each on as many nodes as it requests, if all
// GPUs were empty. The slices of a job are searched for once on each kind of node, whatever number of nodes the job
// requests.
func (v *View) fit(jobs []*offer.Job) bool {
	total, kinds := 0, 0
	bare, rooms := make([]*offer.Job, len(jobs)), make([]func(int) []offer.Spot, len(jobs))
	for k, j := range jobs {
		on := offer.Job{
			Wants:          j.Wants,
			Nodes:          j.Nodes,
			EligibleNodes:  j.EligibleNodes,
			OutsideCluster: j.OutsideCluster,
		}
		if len(j.Wants) > 0 {
			like := slices.IndexFunc(jobs, j.Alike)
			if rooms[k] = rooms[like]; like == k {
				if kinds++; kinds > maxKinds || len(j.Wants) > maxWants {
					return false
				}
				rooms[k] = v.room(j.Wants)
			}
			on.EligibleNodes = slices.DeleteFunc(
				slices.Clone(j.EligibleNodes),
				func(n int) bool { return rooms[k](n) == nil },
			)
		}
		if !j.OutsideCluster {
			total += j.Nodes
		}
		if (len(on.EligibleNodes) < j.Nodes || total > len(v.Members)) && !j.OutsideCluster {
			return false
		}
		bare[k] = &on
	}
	return len(jobs) == 1 || v.bare.AssignNodes(bare, func(k, n int) []offer.Spot { return rooms[k](n) }) != nil
}

// The cost of a plan is limited, because any user may submit any request. maxWants limits the entries for slices in one
// request: more than there are profiles, but far fewer than Slurm accepts. maxKinds limits the kinds of components of a
// het job. Components that request the same slices and have the same expected run time and limit are of the same kind
// and are searched for together.
const (
	maxWants = 64
	maxKinds = 16
)

// room returns a function that finds where slices would fit on a member if its GPUs were empty; nil: they would not
// fit.
func (v *View) room(wants []offer.Want) func(member int) []offer.Spot {
	if v.bare == nil {
		v.clear()
	}
	key := fmt.Sprint(wants)
	could := v.could[key]
	if could == nil {
		could = map[int][]offer.Spot{}
		v.could[key] = could
	}
	return func(member int) []offer.Spot {
		like := v.like[member]
		there, known := could[like]
		if !known {
			there, _ = v.bare.Find(&offer.Job{
				Wants:         wants,
				Nodes:         1,
				EligibleNodes: []int{like},
				RunTime:       math.Inf(1),
				TimeLimit:     math.Inf(1),
			}, nil)
			could[like] = there
		}
		if member == like || there == nil {
			return there
		}
		spots := make([]offer.Spot, len(there))
		for i, s := range there {
			k := slices.Index(v.bare.Nodes[like], s.GPU)
			spots[i] = offer.Spot{GPU: v.bare.Nodes[member][k], Placement: s.Placement}
		}
		return spots
	}
}

// clear makes bare, the cluster with empty GPUs.
func (v *View) clear() {
	var bare [][]place.GPU
	first := map[string]int{}
	for n, gpus := range v.Nodes {
		var on []place.GPU
		key := ""
		for _, g := range gpus {
			g := v.Pool.GPU(g)
			on = append(on, place.GPU{Model: g.Model, Offerable: g.Offerable})
			key += fmt.Sprintf("%p/%x ", g.Model, g.Offerable)
		}
		if _, known := first[key]; !known {
			first[key] = n
		}
		bare, v.like = append(bare, on), append(v.like, first[key])
	}
	v.bare, v.could = offer.NewCluster(place.Reach, bare...), map[string]map[int][]offer.Spot{}
}
