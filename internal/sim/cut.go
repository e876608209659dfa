package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// cut is GPUs that are cut on demand.
type cut struct {
	s    *simulation
	pool *place.Pool
	look place.Look
	sit  place.Situation
	free int
	frag float64   // summed over the GPUs
	done []float64 // by GPU, when the instances that are being made and destroyed there will have been
}

func newCut(s *simulation) *cut {
	c := &cut{s: s, look: place.LookOf(s.Policy)}
	gpus := make([]place.GPU, len(s.GPUs))
	for k, b := range s.GPUs {
		gpus[k].Board = b
		c.free += b.Grid
	}
	c.pool, c.done = place.NewPool(gpus), make([]float64, len(gpus))
	c.sit.Pool = c.pool
	return c
}

func (c *cut) idle() int              { return c.free }
func (c *cut) fragmentation() float64 { return c.frag }

func (c *cut) place(k int, r *reservation) (bool, *reservation) {
	s, j := c.s, c.s.queue.at(k)
	c.foresee()
	c.gather(k)
	total, until := s.total(j.said, 0)
	var made []piece
	for len(made) < j.slices() {
		choice := c.beside(r, j)
		if choice.Verdict != place.Here {
			for _, p := range slices.Backward(made) { // all or nothing
				c.change(p.spot.GPU, func() { c.pool.Set(p.spot.GPU, p.before) })
			}
			if choice.Verdict == place.Hold && k == 0 {
				s.result.Held++
				if j.slices() == 1 {
					return false, c.waitFor(choice)
				}
			}
			return false, c.reserve(k)
		}
		at := place.Spot{GPU: choice.GPU, Placement: choice.Placement}
		made = append(made, piece{at, c.pool.GPU(at.GPU)})
		c.change(at.GPU, func() { c.pool.Start(at.GPU, at.Placement, s.now+total) })
	}
	takes := 0.0
	for _, p := range made {
		takes = max(takes, c.account(p))
		j.spots = append(j.spots, p.spot)
		j.units += p.before.Board.Placements[p.spot.Placement].Size
	}
	c.free -= j.units
	if j.Speed != nil {
		b := c.s.GPUs[made[0].spot.GPU]
		j.runs = j.Takes(b.Profiles[b.Placements[made[0].spot.Placement].Profile].Name)
	}
	s.start(j, takes)
	j.expected, j.until = j.started+total, j.started+until
	if takes > 0 {
		c.expect(j)
	}
	return true, nil
}

// piece is one slice of a job, and what stood on its GPU before.
type piece struct {
	spot   place.Spot
	before place.GPU
}

// waitFor reserves the placement that the policy holds the head for.
func (c *cut) waitFor(choice place.Choice) *reservation {
	return &reservation{at: c.pool.Free(choice.GPU, choice.Placement), spots: []place.Spot{{GPU: choice.GPU, Placement: choice.Placement}}}
}

// beside asks the policy, and keeps what is reserved away from it if the job would still run then.
func (c *cut) beside(r *reservation, j *job) place.Choice {
	if r != nil && c.s.now+c.slowest()+j.said > r.at {
		defer c.withhold(r)()
	}
	return c.choose(j)
}

// slowest is the longest that it can take before a slice is made, in seconds: a GPU's worth of idle instances to destroy, after what
// is under way.
func (c *cut) slowest() float64 {
	if !c.s.keeps() {
		return 0
	}
	return max(0, slices.Max(c.done)-c.s.now) + c.s.Create + float64(mostInTheWay)*c.s.Destroy
}

// mostInTheWay is how many instances an A100 can hold, and no board more.
const mostInTheWay = 7

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
		c.expect(j)
	}
}

// expect tells the pool when a job is expected to end.
func (c *cut) expect(j *job) {
	for _, at := range j.spots {
		c.pool.Expect(at.GPU, at.Placement, j.expected)
	}
}

// reserve is where the head of the queue can start first, by what is expected of ends; nil for the others, and where there is no backfill.
func (c *cut) reserve(k int) *reservation {
	if c.s.Discipline != EASY || k > 0 {
		return nil
	}
	j := c.s.queue.at(k)
	type slot struct {
		free float64
		at   place.Spot
	}
	var all []slot
	for g, b := range c.s.GPUs {
		p, ok := b.ProfileIndex(j.profiles[slices.Index(c.s.kinds, b)])
		if !ok {
			continue
		}
		of := b.OfProfile(p)
		if j.slices() == 1 {
			of &^= c.pool.Busy(g).Open // the policy has turned it down
		}
		for i := range of.Indices() {
			all = append(all, slot{max(c.s.now, c.pool.Free(g, i)), place.Spot{GPU: g, Placement: i}})
		}
	}
	slices.SortStableFunc(all, func(a, b slot) int { return cmp.Compare(a.free, b.free) })
	r := &reservation{}
	taken := map[int]mig.Layout{}
	for _, x := range all {
		if len(r.spots) == j.slices() {
			break
		}
		if b := c.s.GPUs[x.at.GPU]; b.Fits(taken[x.at.GPU], x.at.Placement) {
			taken[x.at.GPU] = taken[x.at.GPU].With(x.at.Placement)
			r.spots = append(r.spots, x.at)
			r.at = x.free
		}
	}
	if len(r.spots) < j.slices() {
		r.at = math.Inf(1)
	}
	return r
}

// withhold blocks what is reserved until the function that it returns is called.
func (c *cut) withhold(r *reservation) func() {
	if math.IsInf(r.at, 1) {
		return func() {}
	}
	var saved []piece
	for _, at := range r.spots {
		g := c.pool.GPU(at.GPU)
		saved = append(saved, piece{at, g})
		g.Blocked |= g.Board.Units(at.Placement) &^ g.Board.Occupied(g.Layout)
		g.Idle &^= g.Board.Overlapping(g.Blocked) // an idle instance there is not to be had either
		c.pool.Set(at.GPU, g)
	}
	return func() {
		for _, p := range slices.Backward(saved) {
			c.pool.Set(p.spot.GPU, p.before)
		}
	}
}

func (c *cut) leave(j *job) {
	for _, at := range j.spots {
		if !c.s.keeps() {
			c.s.result.Destroyed++
		}
		c.change(at.GPU, func() { c.pool.Finish(at.GPU, at.Placement, c.s.keeps()) })
	}
	c.free += j.units
}

// account counts what had to be done for a slice, and answers how long that takes from now, in seconds. A GPU does one thing at a time.
func (c *cut) account(p piece) (takes float64) {
	if p.before.Idle.Has(p.spot.Placement) {
		c.s.result.Reused++
		return 0
	}
	gone := p.before.InTheWay(p.spot.Placement).Count()
	c.s.result.Created++
	c.s.result.Destroyed += gone
	at := &c.done[p.spot.GPU]
	*at = max(*at, c.s.now) + float64(gone)*c.s.Destroy + c.s.Create
	return *at - c.s.now
}

// change does something to a GPU, and keeps account of its fragmentation.
func (c *cut) change(gpu int, do func()) {
	before := c.pool.Busy(gpu).Frag
	do()
	c.frag += c.pool.Busy(gpu).Frag - before
}
