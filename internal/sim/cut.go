package sim

import (
	"math"
	"slices"

	"caelum/internal/place"
)

// cut is GPUs that are cut on demand.
type cut struct {
	s    *simulation
	pool *place.Pool
	look place.Look
	sit  place.Situation
	free int
	frag float64 // summed over the GPUs
}

func newCut(s *simulation) *cut {
	c := &cut{s: s, look: place.LookOf(s.Policy)}
	gpus := make([]place.GPU, len(s.GPUs))
	for k, b := range s.GPUs {
		gpus[k].Board = b
		c.free += b.Grid
	}
	c.pool = place.NewPool(gpus)
	c.sit.Pool = c.pool
	return c
}

func (c *cut) idle() int              { return c.free }
func (c *cut) fragmentation() float64 { return c.frag }

func (c *cut) place(k int, r *reservation) (bool, *reservation) {
	s, j := c.s, c.s.queue.at(k)
	c.foresee()
	c.gather(k)
	if r != nil && s.now+j.said > r.at {
		defer c.withhold(r)()
	}
	choice := c.choose(j)
	switch choice.Verdict {
	case place.Here:
		j.spot = place.Spot{GPU: choice.GPU, Placement: choice.Placement}
		s.start(j, c.make(j.spot))
		total, until := s.total(j.said, 0)
		j.expected, j.until = j.started+total, j.started+until
		c.change(choice.GPU, func() { c.pool.Start(choice.GPU, choice.Placement, j.expected) })
		j.units = c.pool.GPU(choice.GPU).Board.Placements[choice.Placement].Size
		c.free -= j.units
		return true, nil
	case place.Hold:
		s.result.Held++
		return false, &reservation{c.pool.Free(choice.GPU, choice.Placement), choice.GPU, choice.Placement}
	}
	if s.Discipline != EASY || k > 0 {
		return false, nil
	}
	return false, c.reserve(j)
}

// choose asks the policy for what the job needs on one kind of board after the other.
func (c *cut) choose(j *job) (choice place.Choice) {
	r := c.s.request(j)
	for k, name := range j.profiles {
		if name == "" || slices.Contains(j.profiles[:k], name) {
			continue
		}
		r.Profile = name
		if choice = c.s.Policy.Choose(&c.sit, r); choice.Verdict != place.Nowhere {
			break
		}
	}
	return choice
}

// gather tells the policy what it looks at.
func (c *cut) gather(k int) {
	s := c.s
	c.sit.Now = s.now
	c.sit.Behind = c.sit.Behind[:0]
	for i := k + 1; i < s.queue.len() && i <= k+c.look.Behind; i++ {
		c.sit.Behind = append(c.sit.Behind, s.request(s.queue.at(i)))
	}
	if c.look.Weights {
		c.sit.Weights = s.recent.Weights()
	}
	if c.look.Mean {
		c.sit.MeanDuration = s.recent.MeanDuration()
	}
}

// foresee brings up to date when what runs is expected to end.
func (c *cut) foresee() {
	if !c.look.Ends && c.s.Discipline != EASY || c.s.learned == nil {
		return
	}
	version := c.s.learned.Version()
	for _, j := range c.s.running {
		if j.version == version && c.s.now < j.until {
			continue
		}
		total, until := c.s.total(j.said, c.s.now-j.started)
		j.expected, j.until, j.version = j.started+total, j.started+until, version
		c.pool.Expect(j.spot.GPU, j.spot.Placement, j.expected)
	}
}

// reserve is where the job can start first.
func (c *cut) reserve(j *job) *reservation {
	r := &reservation{at: math.Inf(1)}
	for k, b := range c.s.GPUs {
		p, ok := b.ProfileIndex(j.profiles[slices.Index(c.s.kinds, b)])
		if !ok {
			continue
		}
		for i := range b.OfProfile(p).Indices() {
			if f := c.pool.Free(k, i); f < r.at {
				r.at, r.gpu, r.slot = f, k, i
			}
		}
	}
	return r
}

// withhold blocks what is reserved until the function that it returns is called.
func (c *cut) withhold(r *reservation) func() {
	if math.IsInf(r.at, 1) {
		return func() {}
	}
	g := c.pool.GPU(r.gpu)
	blocked := g
	blocked.Blocked |= g.Board.Units(r.slot) &^ g.Board.Occupied(g.Layout)
	c.pool.Set(r.gpu, blocked)
	return func() {
		g := c.pool.GPU(r.gpu)
		g.Blocked = 0
		c.pool.Set(r.gpu, g)
	}
}

func (c *cut) leave(j *job) {
	if !c.s.keeps() {
		c.s.result.Destroyed++
	}
	c.change(j.spot.GPU, func() { c.pool.Finish(j.spot.GPU, j.spot.Placement, c.s.keeps()) })
	c.free += j.units
}

// make counts what has to be done for a placement, and answers how long that takes, in seconds.
func (c *cut) make(at place.Spot) (takes float64) {
	g := c.pool.GPU(at.GPU)
	if g.Idle.Has(at.Placement) {
		c.s.result.Reused++
		return 0
	}
	gone := g.InTheWay(at.Placement).Count()
	c.s.result.Created++
	c.s.result.Destroyed += gone
	return float64(gone)*c.s.Destroy + c.s.Create
}

// change does something to a GPU, and keeps account of its fragmentation.
func (c *cut) change(gpu int, do func()) {
	before := c.pool.Busy(gpu).Frag
	do()
	c.frag += c.pool.Busy(gpu).Frag - before
}
