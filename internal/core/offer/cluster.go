package offer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Cluster holds the GPUs of the nodes that a plan covers, and the instances on them.
type Cluster struct {
	// Situation is the policy's input. Its Pool holds the GPUs of all nodes.
	place.Situation
	Policy place.Policy
	Nodes  [][]int // for each node, the indices of its GPUs in the pool
	// PoweredDown is the number of nodes that are powered down. They are the last nodes in Nodes. A plan uses them only
	// for jobs in the queue that do not fit on the other nodes.
	PoweredDown int
	// parts caches parts of the pool by their nodes, because jobs that can run on the same nodes share a part.
	parts map[string]*part
	// earliest caches the results of firstOfAll, by profile names.
	earliest map[string]*earliest
	// Making is the maximum time, in seconds, between a job's start and the creation of its slices.
	Making float64
	// Speculative lists the profiles that Make is allowed to offer for jobs that will be submitted later. nil means all
	// profiles.
	Speculative map[string]bool
	// WholeShare is the largest fraction of the GPUs that may be full while jobs are waiting for slices (see quota.go).
	// 1 means no limit. If WholeShare is 0, the limit depends on the number of jobs waiting for slices.
	WholeShare float64
	// Arrivals is the number of jobs that are expected to be submitted during a run of average length, or 0 if unknown
	// (ExpectedArrivals).
	Arrivals float64
	linked   bool // see setLinked
	sizing
}

// NewCluster returns a cluster with the GPUs of the nodes. The nodes must be in the order in which slurmctld tries
// them.
func NewCluster(policy place.Policy, nodes ...[]place.GPU) *Cluster {
	c := &Cluster{Policy: policy}
	n := 0
	for _, gpus := range nodes {
		on := make([]int, len(gpus))
		for k := range on {
			on[k] = n + k
		}
		c.Nodes, n = append(c.Nodes, on), n+len(gpus)
	}
	all := slices.Concat(nodes...)
	for n, on := range c.Nodes {
		for _, g := range on {
			all[g].Node = n
		}
	}
	c.Pool = place.NewPool(all)
	c.setLinked()
	return c
}

// SetGPUs replaces the GPUs of a node with the same number of other GPUs. It reports whether all models and all
// placements that can be offered are unchanged.
func (c *Cluster) SetGPUs(node int, gpus []place.GPU) (same bool) {
	same, linked := true, false
	for i, k := range c.Nodes[node] {
		old, g := c.Pool.GPU(k), gpus[i]
		g.Node = node
		same = same && g.Model == old.Model && g.Offerable == old.Offerable
		linked = linked || g.NVLink != old.NVLink
		if !old.Same(g) {
			c.Pool.Set(k, g)
		}
	}
	if linked {
		c.setLinked()
	}
	return same
}

// Spot is a placement on a GPU. The GPU is given by its index in the pool.
type Spot = place.Spot

// Find calls the policy to place a job, without changing the cluster. r is a reservation or nil. The reserved spots
// are used only if the job ends before the reservation begins. If Find returns no spots, why is the policy's result,
// or empty for a job that needs several slices.
func (c *Cluster) Find(j *Job, r *Reservation) (spots []Spot, why place.Choice) {
	if c.PoweredDown > 0 {
		awake := *j
		awake.DeferredNodes = slices.Clone(j.DeferredNodes)
		for n := c.awake(); n < len(c.Nodes); n++ {
			awake.DeferredNodes = append(awake.DeferredNodes, n)
		}
		if spots, why = c.find(&awake, r); spots != nil {
			return spots, why
		}
	}
	return c.find(j, r)
}

// awake returns the number of nodes that are not powered down.
func (c *Cluster) awake() int { return len(c.Nodes) - c.PoweredDown }

func (c *Cluster) find(j *Job, r *Reservation) (spots []Spot, why place.Choice) {
	if len(j.Wants) == 0 || j.severalFractions() {
		return nil, why
	}
	for ; r != nil; r = r.Beside {
		if c.Now+c.Making+j.TimeLimit > r.At {
			defer c.withhold(r)()
		}
	}
	switch {
	case j.slices() > 1:
		spots = c.findSeveral(j)
	case j.EligibleNodes != nil || j.DeferredNodes != nil:
		why = c.chooseOnNodes(j)
	default:
		why = c.choose(&c.Situation, j.Wants[0], j)
	}
	if why.Verdict == place.Here {
		spots = []Spot{c.spare(Spot{GPU: why.GPU, Placement: why.Placement})}
	}
	if slices.ContainsFunc(spots, func(s Spot) bool { return !c.offerable(s) }) {
		return nil, place.Choice{}
	}
	return spots, why
}

func (c *Cluster) offerable(s Spot) bool {
	return c.Pool.GPU(s.GPU).Offerable.Has(s.Placement)
}

// choose returns the placement of one slice of the requested profile, or of a larger profile if Make plans with sizes.
func (c *Cluster) choose(s *place.Situation, w Want, j *Job) place.Choice {
	choice := c.chooseRequested(s, w, j.RunTime)
	if len(w.Sizes) == 0 {
		return choice
	}
	return c.chooseSize(s, w, j, choice)
}

// chooseRequested asks the policy to place first the requested profile and then its equivalent profiles on other GPU
// models. It returns the first placement on which the job can start now.
func (c *Cluster) chooseRequested(s *place.Situation, w Want, runs float64) place.Choice {
	for _, name := range w.profiles() {
		if choice := c.Policy.Choose(s, place.Request{Profile: name, Duration: runs}); choice.Verdict == place.Here {
			return choice
		}
	}
	return place.Choice{}
}

// chooseOnNodes calls the policy to place a one-slice job that can run only on some of the nodes.
func (c *Cluster) chooseOnNodes(j *Job) place.Choice {
	p := c.part(c.nodesNow(j))
	s := c.Situation
	s.Pool = p.pool
	choice := c.choose(&s, j.Wants[0], j)
	if choice.Verdict != place.Nowhere {
		choice.GPU = p.gpus[choice.GPU]
	}
	return choice
}

// part is a pool with only the GPUs of some nodes.
type part struct {
	gpus  []int
	index map[int]int // maps a GPU's index in the pool to its index in gpus
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
	p.pool = c.situationOn(p.gpus).Pool
	if c.parts == nil {
		c.parts = map[string]*part{}
	}
	c.parts[key] = p
	return p
}

// set replaces a GPU's state in the pool and in all parts.
func (c *Cluster) set(gpu int, g place.GPU) {
	c.Pool.Set(gpu, g)
	for _, p := range c.parts {
		if k, ok := p.index[gpu]; ok {
			p.pool.Set(k, g)
		}
	}
}

// Occupy marks a placement as busy until end (seconds) in the pool and in all parts.
func (c *Cluster) Occupy(at Spot, end float64) {
	c.Pool.Start(at.GPU, at.Placement, end)
	for _, p := range c.parts {
		if k, ok := p.index[at.GPU]; ok {
			p.pool.Set(k, c.Pool.GPU(at.GPU))
		}
	}
}

// situationOn returns the situation restricted to the given GPUs.
func (c *Cluster) situationOn(gpus []int) place.Situation {
	stand := make([]place.GPU, len(gpus))
	for k, g := range gpus {
		stand[k] = c.Pool.GPU(g)
	}
	s := c.Situation
	s.Pool = place.NewPool(stand)
	return s
}

// findSeveral finds spots for all slices of a job that needs more than one. It uses the fullest nodes that have room
// for the job's slices on one node, and returns nil if there are too few such nodes.
func (c *Cluster) findSeveral(j *Job) (all []Spot) {
	nodes := c.nodesNow(j)
	free := make([]int, len(c.Nodes))
	for _, n := range nodes {
		for _, g := range c.Nodes[n] {
			if on := c.Pool.Info(g); on != nil {
				free[n] += on.Units
			}
		}
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
	need := j.nodes()
	for _, n := range nodes {
		if spots := c.findTogether(c.Nodes[n], j); spots != nil {
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

// nodesNow returns the nodes on which the job lacks only slices.
func (c *Cluster) nodesNow(j *Job) []int { return without(c.nodesOf(j), j.DeferredNodes) }

// without removes the given nodes (some) from a list and returns the shorter list, which shares its array with nodes.
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

// findTogether finds spots on the given GPUs for all slices that a job needs on one node, or returns nil if not all of
// them fit.
func (c *Cluster) findTogether(gpus []int, j *Job) (all []Spot) {
	if w := j.Wants[0]; len(w.Alternatives)+len(w.Sizes) == 0 && c.placeable(gpus, w.Profile) < w.Count {
		return nil // a faster search for the most common case
	}
	s := c.situationOn(gpus)
	for _, w := range c.bySize(j.Wants) {
		for range w.Count {
			choice := c.choose(&s, w, j)
			if choice.Verdict != place.Here {
				return nil
			}
			// The expected end is +Inf, because a slice never waits for another slice of the same job.
			s.Pool.Start(choice.GPU, choice.Placement, math.Inf(1))
			all = append(all, Spot{GPU: gpus[choice.GPU], Placement: choice.Placement})
		}
		if c.linked && w.Profile == mig.Full && w.Count > 1 {
			c.connect(&s, gpus, all, w.Count)
		}
	}
	return all
}

// placeable returns an upper bound on the number of instances of a profile that fit on the given GPUs.
func (c *Cluster) placeable(gpus []int, profile string) (n int) {
	for _, g := range gpus {
		if on := c.Pool.Info(g); on != nil {
			if p, ok := c.Pool.GPU(g).Model.ProfileIndex(profile); ok {
				n += on.Placeable(p)
			}
		}
	}
	return n
}

// bySize sorts the wants by profile size, largest first, because large profiles are the hardest to place.
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
	slices.SortStableFunc(sorted, func(a, b Want) int { return cmp.Compare(size(b.Needed()), size(a.Needed())) })
	return sorted
}
