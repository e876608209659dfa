package offer

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"caelum/internal/place"
)

// Cluster holds the GPUs of one or more nodes that a plan covers, and what is on them.
type Cluster struct {
	// Situation is the input of the policy. Its Pool holds the GPUs of all nodes. Make sets Behind, the jobs that wait
	// behind the one that is placed. Other callers of Find set it themselves.
	place.Situation
	Policy place.Policy
	Nodes  [][]int // the GPUs of each node, as indices in the pool
	// parts are the parts of the pool, by nodes. Jobs that can run on the same nodes share one.
	parts map[string]*part
	// Making is the longest time from a job's start until its slices exist, in seconds.
	Making float64
}

// Job is a job that waits.
type Job struct {
	ID            uint32
	Wants         []Want // the slices that the job needs on each of its nodes
	Nodes         int    // the number of nodes; 0 counts as 1
	EligibleNodes []int  // the nodes on which the job can run; nil: all
	// DeferredNodes are the eligible nodes on which something other than slices keeps the job from starting now. The
	// job is placed on other nodes if possible.
	DeferredNodes []int
	// NoOfferNodes are the nodes of DeferredNodes on which nothing is offered for the job until it can start.
	NoOfferNodes []int
	// ReadyAt has, for the other nodes of DeferredNodes, when the resources that the job lacks are expected to be free,
	// in seconds. Until then the slices that are kept for the job are lent to jobs that end before. On a node without
	// an entry, the job is expected to be ready at any time.
	ReadyAt map[int]float64
	// FreedAt has, for nodes of DeferredNodes, when jobs with slices are expected to leave the resources that the job
	// lacks, in seconds. On other nodes of DeferredNodes no room is reserved for the job.
	FreedAt map[int]float64
	// SingletonKey limits which jobs are placed together: a plan places at most one job of each key. 0: no limit.
	SingletonKey uint64
	RunTime      float64 // the expected run time, in seconds; +Inf: unknown
	TimeLimit    float64 // the time limit, in seconds; +Inf: none
	// Het is the same for all components of a het job, which are neighbours in the queue; 0: the job is no component.
	// All components start at the same time or none does. No two of them start on the same node: only slurmctld's
	// backfill starts them, and it reserves the nodes of each component (backfill.c, 22.05.8). A component may want
	// nodes only and no slices. OutsideCluster means that such a component can start on a node outside the cluster when
	// none of its nodes here is left.
	Het            uint32
	OutsideCluster bool
}

// Components returns the jobs that start together with the k-th, including that job, and the index of the first of
// them.
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

// byStart yields the groups of jobs that start together, each with the index of its first job.
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
	// Alternatives are the equivalent profiles on other GPU models. One of them is used if there is no room for
	// Profile. It is then offered under the name Profile.
	Alternatives []string
}

// RequestedAs returns the name under which a job with these wants requested what it was given as profile. slurmctld
// counts the slice under this name.
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

// Spot is a placement on a GPU, where the GPU is an index in the pool.
type Spot = place.Spot

// nodes returns how many nodes the job needs.
func (j *Job) nodes() int { return max(j.Nodes, 1) }

func (j *Job) slices() (n int) {
	for _, w := range j.Wants {
		n += w.Count
	}
	return n * j.nodes()
}

// request returns a job in the form that the policy needs.
func (j *Job) request() place.Request {
	return place.Request{Profile: j.Wants[0].Profile, Duration: j.RunTime}
}

// Find asks the policy where a job goes. It withholds the room of the reservation r (nil: none) from the job, unless
// the job ends before the reservation begins. Nothing is changed. Without spots, why is the policy's answer. It is
// empty for a job of several slices.
func (c *Cluster) Find(j *Job, r *Reservation) (spots []Spot, why place.Choice) {
	if len(j.Wants) == 0 {
		return nil, why
	}
	for ; r != nil; r = r.Beside {
		if c.Now+c.Making+j.TimeLimit > r.At {
			defer c.withhold(r)()
		}
	}
	switch {
	case j.slices() > 1:
		spots = c.several(j)
	case j.EligibleNodes != nil || j.DeferredNodes != nil:
		why = c.one(j)
	default:
		why = c.choose(&c.Situation, j.Wants[0], j.RunTime)
	}
	if why.Verdict == place.Here {
		spots = []Spot{{GPU: why.GPU, Placement: why.Placement}}
	}
	if slices.ContainsFunc(spots, func(s Spot) bool { return !c.offerable(s) }) {
		return nil, place.Choice{}
	}
	return spots, why
}

// FindAll finds spots for jobs that start together, for all or none. If there are several jobs, each gets nodes of its
// own, and the policy chooses the spots on these nodes.
func (c *Cluster) FindAll(jobs []*Job, r *Reservation) (all [][]Spot, why place.Choice) {
	if len(jobs) > 1 {
		return c.AssignNodes(jobs, alike(jobs, func(j *Job, n int) []Spot {
			spots, _ := c.Find(j.onNode(n), r)
			return spots
		})), why
	}
	spots, why := c.Find(jobs[0], r)
	if spots == nil {
		return nil, why
	}
	return [][]Spot{spots}, why
}

// Alike reports whether two jobs have the same spots on every node, because they want the same slices and have the same
// run times.
func (j *Job) Alike(o *Job) bool {
	same := func(a, b Want) bool {
		return a.Profile == b.Profile && a.Count == b.Count && slices.Equal(a.Alternatives, b.Alternatives)
	}
	return j.RunTime == o.RunTime && j.TimeLimit == o.TimeLimit && slices.EqualFunc(j.Wants, o.Wants, same)
}

// alike returns a function that gives the result of find for the k-th job on a node. It calls find once for all jobs
// that are alike.
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

// onNode returns the share of a job on one of its nodes as a job.
func (j *Job) onNode(node int) *Job {
	one := *j
	one.EligibleNodes, one.DeferredNodes, one.Nodes = []int{node}, nil, 1
	return &one
}

// AssignNodes gives each job nodes that no other of the jobs has, provided that slurmctld would start them there. It
// returns the spots of each job. The first job gets the first nodes that leave enough nodes for the others, and so on.
// room returns the spots of the k-th job on a node, nil if there are none; AssignNodes calls it once for each job and
// node. A job with OutsideCluster gets the nodes that the others leave. The result is nil if there is no such choice.
func (c *Cluster) AssignNodes(jobs []*Job, room func(k, n int) []Spot) [][]Spot {
	m := matching{rooms: make([][]int, len(jobs)), holder: slices.Repeat([]int{vacant}, len(c.Nodes))}
	spots := make([]map[int][]Spot, len(jobs))
	for k, j := range jobs {
		spots[k] = map[int][]Spot{}
		for _, n := range c.nodesNow(j) {
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

// matching assigns nodes to jobs, each node to at most one job. For each node that they assign, its methods visit the
// rooms of every job at most once.
type matching struct {
	rooms  [][]int // by job, the nodes on which there is room, ascending
	holder []int   // by node, the job to which it is assigned, or vacant or settled
}

// vacant is the holder of a node that no job has. settled is the holder of a node that is not moved to another job any
// more.
const (
	vacant  = -1
	settled = -2
)

// augment assigns one more node to the k-th job, and moves other jobs if necessary. seen are the jobs that cannot be
// moved. If augment fails, it adds the jobs that it has tried to move.
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

// settle lets the k-th job keep the first nodes, up to need, that leave enough nodes for the others. Unless extra is
// set, the job already has this number of nodes, and gives up one of them for each node that it keeps.
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
		back := vacant // a node that the job gives up in exchange
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

// last returns the last node that is assigned to the k-th job.
func (m *matching) last(k int) int {
	for _, n := range slices.Backward(m.rooms[k]) {
		if m.holder[n] == k {
			return n
		}
	}
	return vacant
}

// starts reports whether slurmctld would start jobs on the spots that were found for them, once these are on offer.
// slurmctld takes the jobs in their order. For each it takes the first nodes that have the slices and that no earlier
// job has (backfill.c, 22.05.8).
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
		for _, n := range c.nodesNow(j) {
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
	return c.Pool.GPU(s.GPU).Offerable.Has(s.Placement)
}

// choose asks the policy for the profile and then for its equivalent profiles on other GPU models, until one can start
// now. Otherwise it returns the first answer that is not Nowhere.
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

// one asks the policy where a job of one slice goes that can run on some nodes only.
func (c *Cluster) one(j *Job) place.Choice {
	p := c.part(c.nodesNow(j))
	s := c.Situation
	s.Pool = p.pool
	choice := c.choose(&s, j.Wants[0], j.RunTime)
	if choice.Verdict != place.Nowhere {
		choice.GPU = p.gpus[choice.GPU]
	}
	return choice
}

// part is the pool of some of the nodes.
type part struct {
	gpus  []int
	index map[int]int // by GPU, its index in gpus
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

// set replaces the state of a GPU, in the pool and in its parts.
func (c *Cluster) set(gpu int, g place.GPU) {
	c.Pool.Set(gpu, g)
	for _, p := range c.parts {
		if k, ok := p.index[gpu]; ok {
			p.pool.Set(k, g)
		}
	}
}

// begin makes a placement busy until end (seconds), in the pool and in its parts.
func (c *Cluster) begin(at Spot, end float64) {
	c.Pool.Start(at.GPU, at.Placement, end)
	for _, p := range c.parts {
		if k, ok := p.index[at.GPU]; ok {
			p.pool.Set(k, c.Pool.GPU(at.GPU))
		}
	}
}

// among returns the situation on some of the GPUs.
func (c *Cluster) among(gpus []int) place.Situation {
	stand := make([]place.GPU, len(gpus))
	for k, g := range gpus {
		stand[k] = c.Pool.GPU(g)
	}
	s := c.Situation
	s.Pool = place.NewPool(stand)
	return s
}

// several finds spots for a job of several slices, for all or none: on the fullest nodes that hold its share.
func (c *Cluster) several(j *Job) (all []Spot) {
	nodes := c.nodesNow(j)
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

// nodeOf returns the node of each GPU.
func (c *Cluster) nodeOf() []int {
	all := make([]int, c.Pool.Len())
	for n, gpus := range c.Nodes {
		for _, g := range gpus {
			all[g] = n
		}
	}
	return all
}

// nodesOf returns the nodes on which a job can run.
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

// nodesNow returns the nodes of a job on which nothing but slices keeps it from starting.
func (c *Cluster) nodesNow(j *Job) []int { return without(c.nodesOf(j), j.DeferredNodes) }

// without removes some nodes from a list. It changes the list.
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

// together finds spots on some GPUs for the slices that a job wants on one node, for all or none.
func (c *Cluster) together(gpus []int, j *Job) (all []Spot) {
	s := c.among(gpus)
	for _, w := range c.bySize(j.Wants) {
		for range w.Count {
			choice := c.choose(&s, w, j.RunTime)
			if choice.Verdict != place.Here {
				return nil
			}
			// The end is +Inf, because a slice never waits for another slice of the same job.
			s.Pool.Start(choice.GPU, choice.Placement, math.Inf(1))
			all = append(all, Spot{GPU: gpus[choice.GPU], Placement: choice.Placement})
		}
	}
	return all
}

// bySize puts the largest profiles first, because they are hardest to place.
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
