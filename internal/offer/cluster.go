package offer

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// Cluster is the GPUs that are planned for, those of one node or of many, and how they are used.
type Cluster struct {
	// Situation is what the policy looks at. Its Pool holds the GPUs of all nodes. Who waits behind a job that is
	// looked at is filled in by Make; who calls Find himself does so too.
	place.Situation
	Policy place.Policy
	Nodes  [][]int // the GPUs of each node, as indices in the pool
	// Offerable are, by GPU, the placements that may be given out (the site's profiles); nil: all.
	Offerable []mig.Layout
	parts     map[string]*part // of the pool, by its nodes: jobs that can run on the same nodes look at the same one
	// Making is the longest that it can take from a job's start until its slices are made, in seconds.
	Making float64
}

// Job is one that waits.
type Job struct {
	ID            uint32
	Wants         []Want // on each of its nodes
	Nodes         int    // how many nodes; 0 is 1
	EligibleNodes []int  // nodes that it can run on; nil: all
	// of these, nodes on which something else keeps it from starting now: it is placed elsewhere if it can be
	DeferredNodes []int
	// Unkept are the nodes of Later on which no slices are kept for it until it can start.
	Unkept []int
	// Ready is, for other nodes of Later, when what else it lacks is expected to be free. Until then the slices that
	// are kept for it there are lent to jobs that end before. A node that is missing is expected to be ready at any
	// moment.
	Ready map[int]float64
	// After is, for nodes of Later, when what else it lacks is expected to be free by the ends of jobs with slices.
	// Elsewhere on Later no room is reserved for it.
	After map[int]float64
	// Turn is the same for jobs of which a plan places one at most; 0: any number.
	Turn  uint64
	Runs  float64 // how long it is expected to run, in seconds; +Inf: unknown
	Limit float64 // how long it can run at most, in seconds; +Inf: for ever
	// Het is the same for the components of a het job, which stand next to each other; 0: it is none's. All start at
	// the same time or none does, and no two on one node: slurmctld's backfill, which alone starts them, keeps the
	// nodes of each from the others (backfill.c, 22.05.8). One of them may want no slices, nodes only; Elsewhere: if
	// none of these nodes is left there is one outside the cluster.
	Het            uint32
	OutsideCluster bool
}

// Components are those that start when the k-th does, it among them, and the first one's place.
func Components(jobs []*Job, k int) (first int, all []*Job) {
	first, next := k, k+1
	if het := jobs[k].Het; het != 0 {
		for first > 0 && jobs[first-1].Het == het {
			first--
		}
		for next < len(jobs) && jobs[next].Het == het {
			next++
		}
	}
	return first, jobs[first:next]
}

// byStart yields those that start at the same time, with the first one's place.
func byStart(jobs []*Job) iter.Seq2[int, []*Job] {
	return func(yield func(int, []*Job) bool) {
		for k := 0; k < len(jobs); {
			_, group := Components(jobs, k)
			if !yield(k, group) {
				return
			}
			k += len(group)
		}
	}
}

// Want is a number of slices of one profile.
type Want struct {
	Profile string
	Count   int
	// what other GPU models have for as much: it will do where there is no room for Profile, and is then on offer as
	// Profile
	Alternatives []string
}

// RequestedAs is under which name a job with these wants asked for what it was given as a profile, and what slurmctld
// counts it as.
func RequestedAs(wants []Want, profile string) string {
	for _, w := range wants {
		if w.Profile == profile {
			return profile
		}
	}
	for _, w := range wants {
		if slices.Contains(w.Alternatives, profile) {
			return w.Profile
		}
	}
	return profile
}

// Spot is a placement on a GPU, an index in the pool.
type Spot = place.Spot

// nodes is how many nodes the job needs.
func (j *Job) nodes() int { return max(j.Nodes, 1) }

func (j *Job) slices() (n int) {
	for _, w := range j.Wants {
		n += w.Count
	}
	return n * j.nodes()
}

// request is what the policy is told of a job.
func (j *Job) request() place.Request {
	return place.Request{Profile: j.Wants[0].Profile, Duration: j.Runs}
}

// Find asks the policy where a job goes, and keeps what is reserved (nil: nothing) away from it if it might still run
// then. Nothing is changed. Without spots why says what the policy said, of a job of several slices nothing.
func (c *Cluster) Find(j *Job, r *Reservation) (spots []Spot, why place.Choice) {
	if len(j.Wants) == 0 {
		return nil, why
	}
	for ; r != nil; r = r.Beside {
		if c.Now+c.Making+j.Limit > r.At {
			defer c.withhold(r)()
		}
	}
	switch {
	case j.slices() > 1:
		spots = c.several(j)
	case j.EligibleNodes != nil || j.DeferredNodes != nil:
		why = c.one(j)
	default:
		why = c.choose(&c.Situation, j.Wants[0], j.Runs)
	}
	if why.Verdict == place.Here {
		spots = []Spot{{GPU: why.GPU, Placement: why.Placement}}
	}
	if slices.ContainsFunc(spots, func(s Spot) bool { return !c.offerable(s) }) {
		return nil, place.Choice{}
	}
	return spots, why
}

// FindAll finds where jobs go that start at the same time, all or none. Each of several has nodes of its own, the
// policy says where on these.
func (c *Cluster) FindAll(jobs []*Job, r *Reservation) (all [][]Spot, why place.Choice) {
	if len(jobs) > 1 {
		return c.Apart(jobs, alike(jobs, func(j *Job, n int) []Spot {
			spots, _ := c.Find(j.only(n), r)
			return spots
		})), why
	}
	spots, why := c.Find(jobs[0], r)
	if spots == nil {
		return nil, why
	}
	return [][]Spot{spots}, why
}

// Alike reports whether two jobs have the same on a node, as they want and run for the same.
func (j *Job) Alike(o *Job) bool {
	return j.Runs == o.Runs && j.Limit == o.Limit && slices.EqualFunc(j.Wants, o.Wants, func(a, b Want) bool {
		return a.Profile == b.Profile && a.Count == b.Count && slices.Equal(a.Alternatives, b.Alternatives)
	})
}

// alike answers for the k-th of some jobs on a node what find does, which is asked once for all jobs that are alike.
func alike[T any](jobs []*Job, find func(j *Job, n int) T) func(k, n int) T {
	first := make([]int, len(jobs))
	for k, j := range jobs {
		first[k] = slices.IndexFunc(jobs, j.Alike)
	}
	type place struct{ first, node int }
	found := map[place]T{}
	return func(k, n int) T {
		at := place{first[k], n}
		answer, known := found[at]
		if !known {
			answer = find(jobs[first[k]], n)
			found[at] = answer
		}
		return answer
	}
}

// only is a job's share on one of its nodes, as a job.
func (j *Job) only(node int) *Job {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.Nodes = []int{node}, nil, 1
	return &one
}

// Apart gives each of some jobs nodes that no other job has, if slurmctld would start them there: the first job gets
// the first nodes that leave enough for the others, and so on. room returns the spots of the k-th job on a node, nil if
// there are none; it is called once for each job and node. A job with Elsewhere takes what the others leave of its
// nodes. nil: there is no such choice.
func (c *Cluster) Apart(jobs []*Job, room func(k, n int) []Spot) [][]Spot {
	m := matching{rooms: make([][]int, len(jobs)), holder: slices.Repeat([]int{vacant}, len(c.Nodes))}
	spots := make([]map[int][]Spot, len(jobs))
	for k, j := range jobs {
		spots[k] = map[int][]Spot{}
		for _, n := range c.now(j) {
			if len(j.Wants) == 0 {
				spots[k][n] = []Spot{}
			} else if found := room(k, n); found != nil {
				spots[k][n] = found
			} else {
				continue
			}
			m.rooms[k] = append(m.rooms[k], n)
		}
		slices.Sort(m.rooms[k])
		if len(m.rooms[k]) < j.nodes() && !j.OutsideCluster {
			return nil
		}
	}
	for k, j := range jobs {
		for range j.nodes() {
			if !j.OutsideCluster && !m.augment(k, make([]bool, len(jobs))) {
				return nil
			}
		}
	}
	all := make([][]Spot, len(jobs))
	for k, j := range jobs {
		all[k] = []Spot{}
		for _, n := range m.settle(k, min(j.nodes(), len(m.rooms[k])), j.OutsideCluster) {
			all[k] = append(all[k], spots[k][n]...)
		}
	}
	if !c.starts(jobs, all) {
		return nil
	}
	return all
}

// matching gives nodes to jobs, each node to one job at most. Its methods cost at most one visit of every job's rooms
// for each node that they give.
type matching struct {
	rooms  [][]int // by job, the nodes that would do, ascending
	holder []int   // by node, the job that has it
}

// A node that no job has, and one that a job keeps.
const (
	vacant  = -1
	settled = -2
)

// augment gives the k-th job one node more, and moves other jobs for that if need be. seen are the jobs that cannot be
// moved; when augment fails it adds those that it has tried.
func (m *matching) augment(k int, seen []bool) bool {
	seen[k] = true
	for _, n := range m.rooms[k] {
		if m.holder[n] == vacant {
			m.holder[n] = k
			return true
		}
	}
	for _, n := range m.rooms[k] {
		if other := m.holder[n]; other != settled && !seen[other] && m.augment(other, seen) {
			m.holder[n] = k
			return true
		}
	}
	return false
}

// settle lets the k-th job keep its first so many nodes with which the others still have theirs. Unless extra is set
// the job has as many nodes already, and gives one back for each that it keeps.
func (m *matching) settle(k, need int, extra bool) (kept []int) {
	seen := make([]bool, len(m.rooms))
	for _, n := range m.rooms[k] {
		if len(kept) == need {
			break
		}
		holder := m.holder[n]
		if holder == settled {
			continue
		}
		m.holder[n] = settled
		back := vacant // a node that the job gives back for this one
		if !extra && holder != k {
			back = m.last(k)
			m.holder[back] = vacant
		}
		if holder >= 0 && holder != k && (seen[holder] || !m.augment(holder, seen)) {
			if m.holder[n] = holder; back != vacant {
				m.holder[back] = k
			}
			continue
		}
		kept = append(kept, n)
		clear(seen)
	}
	return kept
}

// last is the last node that the k-th job has.
func (m *matching) last(k int) int {
	for _, n := range slices.Backward(m.rooms[k]) {
		if m.holder[n] == k {
			return n
		}
	}
	return vacant
}

// starts reports whether slurmctld would start jobs on what was found for them, once that is on offer: it takes the
// jobs in their order, and for each the first nodes that have what it wants and that none before it has (backfill.c,
// 22.05.8).
func (c *Cluster) starts(jobs []*Job, all [][]Spot) bool {
	nodeOf := c.nodeOf()
	free := map[wanted]int{}
	for k, spots := range all {
		for _, s := range spots {
			free[wanted{RequestedAs(jobs[k].Wants, c.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)), nodeOf[s.GPU]}]++
		}
	}
	taken := map[int]bool{}
	for _, j := range jobs {
		need := j.nodes()
		for _, n := range c.now(j) {
			if need == 0 || taken[n] ||
				slices.ContainsFunc(j.Wants, func(w Want) bool { return free[wanted{w.Profile, n}] < w.Count }) {
				continue
			}
			taken[n] = true
			need--
		}
		if need > 0 && !j.OutsideCluster {
			return false
		}
	}
	return true
}

func (c *Cluster) offerable(s Spot) bool {
	return c.Offerable == nil || c.Offerable[s.GPU].Has(s.Placement)
}

// choose asks the policy for the profile and then for its equivalents on other GPU models, until one can start now. A
// job is held for the first of these only if none can.
func (c *Cluster) choose(s *place.Situation, w Want, runs float64) (choice place.Choice) {
	for _, name := range append([]string{w.Profile}, w.Alternatives...) {
		next := c.Policy.Choose(s, place.Request{Profile: name, Duration: runs})
		switch {
		case next.Verdict == place.Here:
			return next
		case choice.Verdict == place.Nowhere:
			choice = next
		}
	}
	return choice
}

// one asks the policy where the slice of a job goes that can run on some nodes only.
func (c *Cluster) one(j *Job) place.Choice {
	p := c.part(c.now(j))
	s := c.Situation
	s.Pool = p.pool
	choice := c.choose(&s, j.Wants[0], j.Runs)
	if choice.Verdict != place.Nowhere {
		choice.GPU = p.gpus[choice.GPU]
	}
	return choice
}

// part is the pool of some nodes.
type part struct {
	gpus  []int
	index map[int]int // of these
	pool  *place.Pool
}

func (c *Cluster) part(nodes []int) *part {
	key := fmt.Sprint(nodes)
	if p := c.parts[key]; p != nil {
		return p
	}
	p := &part{index: map[int]int{}}
	for _, n := range nodes {
		for _, g := range c.Nodes[n] {
			p.index[g] = len(p.gpus)
			p.gpus = append(p.gpus, g)
		}
	}
	p.pool = c.among(p.gpus).Pool
	if c.parts == nil {
		c.parts = map[string]*part{}
	}
	c.parts[key] = p
	return p
}

// set changes what stands on a GPU, in the pool and in its parts.
func (c *Cluster) set(gpu int, g place.GPU) {
	c.Pool.Set(gpu, g)
	for _, p := range c.parts {
		if k, ok := p.index[gpu]; ok {
			p.pool.Set(k, g)
		}
	}
}

// begin makes a placement busy until end, in the pool and in its parts.
func (c *Cluster) begin(at Spot, end float64) {
	c.Pool.Start(at.GPU, at.Placement, end)
	for _, p := range c.parts {
		if k, ok := p.index[at.GPU]; ok {
			p.pool.Set(k, c.Pool.GPU(at.GPU))
		}
	}
}

// among is the situation on some of the GPUs.
func (c *Cluster) among(gpus []int) place.Situation {
	stand := make([]place.GPU, len(gpus))
	for k, g := range gpus {
		stand[k] = c.Pool.GPU(g)
	}
	s := c.Situation
	s.Pool = place.NewPool(stand)
	return s
}

// several finds places for a job of several slices, all or none: on the fullest nodes that hold its share.
func (c *Cluster) several(j *Job) (all []Spot) {
	nodes := c.now(j)
	free := make([]int, len(c.Nodes))
	for _, n := range nodes {
		for _, g := range c.Nodes[n] {
			if on := c.Pool.Busy(g); on != nil {
				free[n] += on.Units
			}
		}
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
	need := j.nodes()
	for _, n := range nodes {
		if spots := c.together(c.Nodes[n], j); spots != nil {
			all = append(all, spots...)
			if need--; need == 0 {
				return all
			}
		}
	}
	return nil
}

// nodeOf is, by GPU, its node.
func (c *Cluster) nodeOf() []int {
	all := make([]int, c.Pool.Len())
	for n, gpus := range c.Nodes {
		for _, g := range gpus {
			all[g] = n
		}
	}
	return all
}

// nodesOf are the nodes that a job can run on.
func (c *Cluster) nodesOf(j *Job) []int {
	if j.EligibleNodes != nil {
		return slices.Clone(j.EligibleNodes)
	}
	all := make([]int, len(c.Nodes))
	for n := range all {
		all[n] = n
	}
	return all
}

// now are the nodes of these on which nothing but slices keeps a job from starting.
func (c *Cluster) now(j *Job) []int { return without(c.nodesOf(j), j.DeferredNodes) }

// without removes some nodes from a list, which it changes.
func without(nodes, some []int) []int {
	if len(some) == 0 {
		return nodes
	}
	out := make([]bool, slices.Max(some)+1)
	for _, n := range some {
		out[n] = true
	}
	return slices.DeleteFunc(nodes, func(n int) bool { return n >= 0 && n < len(out) && out[n] })
}

// CanStartOn reports whether a job could start on a node now if it had its slices there.
func (j *Job) CanStartOn(node int) bool {
	return (j.EligibleNodes == nil || slices.Contains(j.EligibleNodes, node)) && !slices.Contains(j.DeferredNodes, node)
}

// together finds places on some GPUs for what a job wants on one node, all or none.
func (c *Cluster) together(gpus []int, j *Job) (all []Spot) {
	s := c.among(gpus)
	for _, w := range c.bySize(j.Wants) {
		for range w.Count {
			choice := c.choose(&s, w, j.Runs)
			if choice.Verdict != place.Here {
				return nil
			}
			s.Pool.Start(choice.GPU, choice.Placement, math.Inf(1)) // no slice waits for another of the same job
			all = append(all, Spot{GPU: gpus[choice.GPU], Placement: choice.Placement})
		}
	}
	return all
}

// bySize puts the largest profiles first: what is hardest to place goes where there is most room.
func (c *Cluster) bySize(wants []Want) []Want {
	if len(wants) == 1 {
		return wants
	}
	size := func(profile string) (most int) {
		for k := range c.Pool.Len() {
			if b := c.Pool.GPU(k).Model; b != nil {
				if p, ok := b.ProfileIndex(profile); ok {
					most = max(most, b.Profiles[p].Size)
				}
			}
		}
		return most
	}
	sorted := slices.Clone(wants)
	slices.SortStableFunc(sorted, func(a, b Want) int { return cmp.Compare(size(b.Profile), size(a.Profile)) })
	return sorted
}
