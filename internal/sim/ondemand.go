package sim

import (
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// cut implements room: a policy places slices on the GPUs on demand.
type cut struct {
	s *simulation
	offer.Cluster
	free   int
	frag   float64   // the sum of all GPUs' fragmentation
	done   []float64 // for each GPU, the time at which its pending creations and destructions will be complete
	active int       // the number of GPUs with at least one running job
}

func newCut(s *simulation) *cut {
	c := &cut{s: s}
	gpus := make([]place.GPU, len(s.GPUs))
	for k, b := range s.GPUs {
		gpus[k].Model, gpus[k].Offerable, gpus[k].Node = b, b.Open(0, 0), s.nodeOf[k]
		c.free += b.Grid
	}
	c.done = make([]float64, len(gpus))
	c.Pool, c.Nodes, c.Policy = place.NewPool(gpus), s.nodes, s.Policy
	c.WholeShare = s.WholeShare
	for k := range gpus {
		c.frag += c.Pool.Info(k).Frag // above 0 on an empty GPU if the model limits a profile to one instance
	}
	return c
}

func (c *cut) idle() int              { return c.free }
func (c *cut) fragmentation() float64 { return c.frag }

func (c *cut) place(k int, r *reservation) (bool, *reservation) {
	s, j := c.s, c.s.queue.at(k)
	c.foresee()
	c.gather()
	j.offer.RunTime = s.runTime(j)
	spots, why := c.Find(&j.offer, r.onCut())
	if spots == nil {
		if s.Discipline != EASY || k > 0 {
			return false, nil
		}
		first := c.Reserve(&j.offer, why)
		return false, &reservation{at: first.At, spots: first.Spots}
	}
	c.start(j, spots)
	return true, nil
}

// start assigns the spots to a job and starts it.
func (c *cut) start(j *Job, spots []place.Spot) {
	s := c.s
	got := s.profile(spots[0])
	j.spots = spots
	total, until := s.total(j, s.takes(j), 0)
	takes := 0.0
	for _, at := range spots {
		takes = max(takes, c.account(at))
		c.change(at.GPU, func() { c.Pool.Start(at.GPU, at.Placement, s.now+total) })
		j.units += s.GPUs[at.GPU].Placements[at.Placement].Size
	}
	c.free -= j.units
	if j.Speed != nil {
		j.runs = j.Takes(got.Name) * (1 - j.done)
	}
	if s.Growth != nil {
		j.runs = s.Growth.Started(j.Job, got.Name)
	}
	s.start(j, takes, got.Memory())
	j.expected, j.until = j.started+total, j.started+until
	if takes > 0 {
		c.expect(j)
	}
}

// profile returns the profile of the slice at a spot.
func (s *simulation) profile(at place.Spot) *mig.Profile {
	b := s.GPUs[at.GPU]
	return &b.Profiles[b.Placements[at.Placement].Profile]
}

// slowest returns an upper bound on the time, in seconds, until a new slice is ready. The bound includes all pending
// work, the destruction of all of a GPU's instances, a switch of the MIG mode, and the creation of one instance.
func (c *cut) slowest() float64 {
	if !c.s.keeps() && c.s.Switch == 0 {
		return 0
	}
	return max(0, slices.Max(c.done)-c.s.now) + c.s.Switch + c.s.Create + float64(mostInTheWay)*c.s.Destroy
}

// mostInTheWay is the maximum number of instances on one GPU of any model (7 on an A100).
const mostInTheWay = 7

// gather sets the policy's inputs.
func (c *cut) gather() {
	s := c.s
	c.Now, c.Making = s.now, c.slowest()
	c.Weights, c.MeanDuration = s.recent.Weights(), s.recent.MeanDuration()
}

// foresee updates the running jobs' expected ends.
func (c *cut) foresee() {
	if c.s.corrected == nil && c.s.High == nil {
		return // the expected ends are constant
	}
	version := c.s.version()
	for _, j := range c.s.running {
		if j.version == version && c.s.now < j.until {
			continue
		}
		from := j.started + j.lost
		total, until := c.s.total(j, c.s.takes(j), max(0, c.s.now-from))
		j.expected, j.until, j.version = from+total, from+until, version
		c.expect(j)
	}
}

// expect writes a job's expected end into the pool.
func (c *cut) expect(j *Job) {
	for _, at := range j.spots {
		c.Pool.Expect(at.GPU, at.Placement, j.expected)
	}
}

func (c *cut) leave(j *Job) {
	for _, at := range j.spots {
		keep := c.s.keeps() || c.s.GPUs[at.GPU].Full().Has(at.Placement)
		if !keep {
			c.s.result.Destroyed++
		}
		c.change(at.GPU, func() { c.Pool.Finish(at.GPU, at.Placement, keep) })
	}
	c.free += j.units
}

// account counts a slice as reused or, if the slice must be created, counts the creation, the destructions and the
// switch of the MIG mode that are required. It returns the time, in seconds, until the slice is ready. A GPU performs
// only one of these operations at a time.
func (c *cut) account(spot place.Spot) (takes float64) {
	before := c.Pool.GPU(spot.GPU)
	if before.Idle.Has(spot.Placement) {
		c.s.result.Reused++
		return 0
	}
	full := before.Model.Full()
	gone := before.InTheWay(spot.Placement)
	destroyed := (gone &^ full).Count()
	work := float64(destroyed) * c.s.Destroy
	c.s.result.Destroyed += destroyed
	if full.Has(spot.Placement) || gone&full != 0 {
		c.s.result.Switched++
		work += c.s.Switch
	}
	if !full.Has(spot.Placement) {
		c.s.result.Created++
		work += c.s.Create
	}
	at := &c.done[spot.GPU]
	*at = max(*at, c.s.now) + work
	return *at - c.s.now
}

// change calls do, which changes a GPU, and then updates the sum of the fragmentation.
func (c *cut) change(gpu int, do func()) {
	before, busy := c.Pool.Info(gpu).Frag, c.Pool.GPU(gpu).Busy != 0
	do()
	c.frag += c.Pool.Info(gpu).Frag - before
	switch now := c.Pool.GPU(gpu).Busy != 0; {
	case now && !busy:
		c.active++
	case busy && !now:
		c.active--
	}
}
