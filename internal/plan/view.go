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

// Snapshot is slurmctld's answers to one read: the nodes first, then the queue.
type Snapshot struct {
	Nodes []slurm.Node
	Queue slurm.Queue
	At    time.Time // when, by the clock of the host that asked

	unkept map[uint32]bool // users for whose jobs no room is kept while they lack something else than slices
}

// ready reports whether a waiting job could start if it had its slices: slurmctld would start it, or an agent releases
// it.
func (s Snapshot) ready(w slurm.Waiting) bool {
	return (w.Eligible() || w.Releasable(s.At)) && s.Queue.LacksLicense(w) == ""
}

// View is a look as package offer wants it.
type View struct {
	*offer.Cluster
	// Members are the nodes that are planned for, by their index in the cluster.
	Members []slurm.Node
	since   []time.Time                     // by member, since when its offers have been what they are
	bare    *offer.Cluster                  // the GPUs with nothing on them
	running map[string][]occupant           // by node, in the order of their ends
	unkept  map[uint32]bool                 // users, see Snapshot
	like    []int                           // by member, the first member that has the same GPUs
	could   map[string]map[int][]offer.Spot // by request, where its slices go on such members
	// Jobs are those that could start if their slices were on offer, in slurmctld's order, and Waiting what each is
	// there. The pending tasks of an array that are one entry there are several here.
	Jobs    []*offer.Job
	Waiting []slurm.Waiting
}

// making is the longest that it takes from slurmctld's start of a job until its slices are made, in seconds: seven
// instances to destroy and one to create take 2 s on an A100, the rest is what slurmd does before it asks.
const making = 5

// overdue is how much longer a job is taken to run that should have ended, in seconds: slurmctld looks for such jobs
// every 30 s.
const overdue = 30

// New makes a view of a look. Nodes that without says yes to are left out.
func New(snapshot Snapshot, policy place.Policy, without func(slurm.Node) bool) *View {
	v := &View{}
	snapshot.Nodes = slices.Clone(snapshot.Nodes)
	slices.SortStableFunc(snapshot.Nodes, func(a, b slurm.Node) int { return cmp.Compare(a.Weight, b.Weight) })
	now := float64(snapshot.At.UnixMilli()) / 1000
	on := runningOn(snapshot.Queue.All, snapshot.At)
	var stands [][]offer.GPU
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
		v.Members, v.since, stands = append(v.Members, n), append(v.since, state.Since), append(stands, state.GPUs)
	}
	v.Cluster = offer.NewCluster(policy, stands...)
	v.Now, v.Making = now, making
	v.recent(snapshot.Queue.All)
	v.running, v.unkept = occupants(snapshot.Queue.All, v.Now), snapshot.unkept
	v.queue(snapshot)
	return v
}

// overrun expects what should have ended to end soon.
func overrun(g *offer.GPU, now float64) {
	for i := range g.Ends {
		if g.Ends[i] < now {
			g.Ends[i] = now + overdue
		}
	}
}

// recent tells what was asked for lately: by the jobs that slurmctld has not forgotten yet.
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

// seconds of a time that is infinite if it is 0.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.Inf(1)
	}
	return d.Seconds()
}

// queue notes who waits, in the look's order; its nodes are in slurmctld's.
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
				v.may(jobs[k], w, held)
			} else {
				v.takes(jobs[k], w, snapshot.Nodes)
			}
		}
		if !v.fit(jobs) { // they would keep others from their profiles for nothing
			continue
		}
		for _, j := range jobs {
			if len(j.EligibleNodes) == len(v.Members) && len(j.Wants) > 0 && len(j.DeferredNodes) == 0 {
				j.EligibleNodes = nil
			}
		}
		// More of an array's tasks than the cluster has slots cannot start.
		for range min(waiting[0].Elements, slots) {
			for k := range jobs {
				one := *jobs[k]
				if waiting[0].Priority == 0 {
					one.Turn = uint64(waiting[0].UID) + 1
				}
				v.Jobs, v.Waiting = append(v.Jobs, &one), append(v.Waiting, waiting[k])
			}
		}
	}
}

// may notes on which members a job can run.
func (v *View) may(job *offer.Job, w slurm.Waiting, held map[string]map[string]int) {
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
			v.lacks(job, w, k)
		}
	}
	if w.NumNodes > 1 {
		v.oneAlternative(job, w.Features)
	}
}

// oneAlternative leaves a job on several nodes those members that have the same alternative of its constraint ([a|b]):
// the alternative that most members have on which the job could start now, else on which it could run.
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
		job.EligibleNodes, job.DeferredNodes, job.Unkept = best, slices.DeleteFunc(
			job.DeferredNodes,
			other,
		), slices.DeleteFunc(
			job.Unkept,
			other,
		)
	}
}

// takes notes on which members a component that wants no slices may start: those that slurmctld comes to before any
// other node that would do now.
func (v *View) takes(job *offer.Job, w slurm.Waiting, nodes []slurm.Node) {
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

// equivalentProfiles are the names of the cluster's GPU models for as much as a profile that they do not have.
func (v *View) equivalentProfiles(profile string) (names []string) {
	seen := map[*mig.Model]bool{}
	for g := range v.Pool.Len() {
		b := v.Pool.GPU(g).Model
		if b == nil || seen[b] {
			continue
		}
		seen[b] = true
		if name, ok := b.EquivalentProfile(profile, v.Offerable[g]); ok && name != profile &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// heldOn is, by node and type, what slurmctld's own records say that its jobs have of gres/mig.
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

// forgotten reports whether slurmctld counts less of another GPU model's profile as used on a member than is held
// there: started anew, it forgets what is used of types that slurm.conf does not give the node, and at the end of such
// a job it takes off what it counts of the next (22.05.8). Until then nothing more is on offer under that name.
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

// startable returns the waiting jobs that could start if they had their slices, in order, grouped by what starts
// together. All components of a het job start at the same time, or none does. They are placed where the last component
// that is not held is (if all are held, where the first is), because backfill considers the het job there with
// bf_hetjob_prio=min (backfill.c, 22.05.8). Slices that are offered to it earlier go to the jobs between its
// components, and the het job keeps GPUs idle without getting them.
func startable(snapshot Snapshot) (all [][]slurm.Waiting) {
	het := snapshot.hetJobs()
	order := snapshot.Queue.InOrder()
	last := map[uint32]uint32{} // by het job, the component that decides its place
	for _, w := range order {
		if _, some := last[w.HetJob]; w.Priority > 0 || !some {
			last[w.HetJob] = w.ID
		}
	}
	for _, w := range order {
		switch {
		case w.HetJob == 0 && snapshot.ready(w):
			all = append(all, []slurm.Waiting{w})
		case het[w.HetJob] != nil && het[w.HetJob].whole && last[w.HetJob] == w.ID:
			all = append(all, het[w.HetJob].pending)
		}
	}
	return all
}

// Job is what a waiting job needs.
func Job(w slurm.Waiting) *offer.Job {
	j := &offer.Job{
		ID:    w.ID,
		Het:   w.HetJob,
		Nodes: max(w.NumNodes, 1),
		Runs:  seconds(w.Expected()),
		Limit: seconds(w.TimeLimit),
	}
	for _, g := range w.SlicesPerNode() {
		if g.Type != "" && g.Type != slurm.ClosedType {
			j.Wants = append(j.Wants, offer.Want{Profile: g.Type, Count: g.Count})
		}
	}
	return j
}

// Plan plans the view.
func (v *View) Plan() offer.Plan { return offer.Make(v.Cluster, v.Jobs, false) }

// Member is a node's index among those that are planned for; -1: it is none.
func (v *View) Member(name string) int {
	return slices.IndexFunc(v.Members, func(n slurm.Node) bool { return n.Name == name })
}

// Offers is what a plan puts on offer on a member, by its GPUs.
func (v *View) Offers(p offer.Plan, member int) (offers []mig.Layout) {
	for _, g := range v.Nodes[member] {
		offers = append(offers, p.Offers[g])
	}
	return offers
}

// Counts is what a plan puts on offer on a member, by name.
func (v *View) Counts(p offer.Plan, member int) map[string]int {
	n := map[string]int{}
	for _, g := range v.Nodes[member] {
		for i := range p.Offers[g].Indices() {
			n[p.Name(v.Pool.GPU(g).Model, offer.Spot{GPU: g, Placement: i})]++
		}
	}
	return n
}

// On are the nodes of some spots.
func (v *View) On(spots []offer.Spot) (all []string) {
	for m, gpus := range v.Nodes {
		if slices.ContainsFunc(spots, func(s offer.Spot) bool { return slices.Contains(gpus, s.GPU) }) {
			all = append(all, v.Members[m].Name)
		}
	}
	return all
}

// Controller is what a look needs of slurmctld; *slurm.Client is the real one.
type Controller interface {
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Queue(ctx context.Context) (slurm.Queue, error)
}

// Read asks slurmctld for the nodes, then for the jobs. The order matters to an agent: a job that starts between the
// two is then among the jobs; read the other way round it would only be in GresUsed, and its slice would be offered
// once more.
func Read(ctx context.Context, ctl Controller, now func() time.Time) (snapshot Snapshot, err error) {
	if snapshot.Nodes, err = ctl.Nodes(ctx); err != nil {
		return snapshot, err
	}
	snapshot.Queue, err = ctl.Queue(ctx)
	snapshot.At = now()
	return snapshot, err
}

// fit reports whether jobs that start at the same time ever could: each on as many nodes as it wants, if nothing stood
// anywhere. What one job asks for is searched for once on each kind of node, however many nodes it asks for.
func (v *View) fit(jobs []*offer.Job) bool {
	total, kinds := 0, 0
	bare, rooms := make([]*offer.Job, len(jobs)), make([]func(int) []offer.Spot, len(jobs))
	for k, j := range jobs {
		one := offer.Job{
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
			one.EligibleNodes = slices.DeleteFunc(
				slices.Clone(j.EligibleNodes),
				func(n int) bool { return rooms[k](n) == nil },
			)
		}
		if !j.OutsideCluster {
			total += j.Nodes
		}
		if (len(one.EligibleNodes) < j.Nodes || total > len(v.Members)) && !j.OutsideCluster {
			return false
		}
		bare[k] = &one
	}
	return len(jobs) == 1 || v.bare.Apart(bare, func(k, n int) []offer.Spot { return rooms[k](n) }) != nil
}

// What a plan searches for is bounded, since any user may ask for it. maxWants limits the entries for slices in one
// request: more than there are profiles, far fewer than a request may have. maxKinds limits the components of a het job
// that want different slices, or run for different times: the others are found together.
const (
	maxWants = 64
	maxKinds = 16
)

// room returns where slices go on a member if nothing stood there; nil: it cannot hold them.
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
			there, _ = v.bare.Find(
				&offer.Job{Wants: wants, Nodes: 1, EligibleNodes: []int{like}, Runs: math.Inf(1), Limit: math.Inf(1)},
				nil,
			)
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

// clear makes the cluster with nothing on its GPUs.
func (v *View) clear() {
	var bare [][]offer.GPU
	first := map[string]int{}
	for n, gpus := range v.Nodes {
		var on []offer.GPU
		key := ""
		for _, g := range gpus {
			b, given := v.Pool.GPU(g).Model, v.Offerable[g]
			on = append(on, offer.GPU{Model: b, Offerable: given})
			key += fmt.Sprintf("%p/%x ", b, given)
		}
		if _, known := first[key]; !known {
			first[key] = n
		}
		bare, v.like = append(bare, on), append(v.like, first[key])
	}
	v.bare, v.could = offer.NewCluster(place.Reach, bare...), map[string]map[int][]offer.Spot{}
}
