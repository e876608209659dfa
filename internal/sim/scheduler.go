package sim

import (
	"container/heap"
	"math"
	"slices"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// Scheduler starts jobs in an order other than that of the disciplines, or moves running jobs. Programs that compare
// Caelum with other systems implement it (contrib/lab/papers).
type Scheduler interface {
	// Turn starts one job or several. It returns false if no further job can start now.
	Turn() bool
	// Left is called when a job's run has ended and its slices are free.
	Left(j *Job)
}

// Control lets a Scheduler read and change the simulation.
type Control struct{ s *simulation }

// Config returns the configuration, which must not be changed.
func (c *Control) Config() *Config { return &c.s.Config }

// Now returns the time in seconds.
func (c *Control) Now() float64 { return c.s.now }

// Waiting returns the number of waiting jobs, and Job the k-th of them in the order of submission.
func (c *Control) Waiting() int   { return c.s.queue.len() }
func (c *Control) Job(k int) *Job { return c.s.queue.at(k) }

// Running returns the jobs that hold slices, in any order. The caller must not change the slice.
func (c *Control) Running() []*Job { return c.s.running }

// Request returns a waiting job in the form that policies use.
func (c *Control) Request(j *Job) place.Request { return c.s.request(j) }

// Pool returns the GPUs. The policy must place slices on demand.
func (c *Control) Pool() *place.Pool { return c.s.room.(*cut).Pool }

// Situation updates the expected ends of running jobs and returns the input of the policy, which must place slices on
// demand.
func (c *Control) Situation() place.Situation {
	r := c.s.room.(*cut)
	r.foresee()
	r.gather()
	return r.Situation
}

// Next starts a job as Discipline requires, or returns false if no further job can start now.
func (c *Control) Next() bool { return c.s.turn() }

// Try starts the k-th waiting job if it fits.
func (c *Control) Try(k int) bool { return c.s.try(k, nil) }

// Search calls try for the waiting jobs from a position on, until it returns true. order maps a position to the index
// of a waiting job. Search skips jobs that request the same as an earlier job with at most the same estimated run time,
// and gives up after as many jobs as production (offer.Depth).
func (c *Control) Search(from int, order func(int) int, try func(k int) bool) bool {
	tried := slices.Repeat([]float64{math.NaN()}, len(c.s.needs)) // the shortest estimate of a job that did not fit
	for k := from; k < min(c.Waiting(), from+offer.Depth); k++ {
		at := order(k)
		j := c.Job(at)
		if j.estimate >= tried[j.need] {
			continue
		}
		if try(at) {
			return true
		}
		tried[j.need] = j.estimate
	}
	return false
}

// Start starts a waiting job at the given spots, which must be possible. Without a policy and fixed layouts, spots is
// ignored.
func (c *Control) Start(j *Job, spots []place.Spot) {
	c.s.queue.remove(slices.Index(c.s.queue.jobs[c.s.queue.head:], j))
	switch r := c.s.room.(type) {
	case *cut:
		r.start(j, spots)
	case *counted:
		r.start(j)
	}
}

// Lift destroys the slice of a running job with one slice. Put must follow at the same time.
func (c *Control) Lift(j *Job) {
	r, at := c.s.room.(*cut), j.spots[0]
	c.s.segment(j)
	c.s.result.Destroyed++
	r.change(at.GPU, func() { r.Pool.Finish(at.GPU, at.Placement, false) })
}

// Put gives a lifted job a slice. The job loses the given number of seconds of its run.
func (c *Control) Put(j *Job, at place.Spot, lost float64) {
	r := c.s.room.(*cut)
	takes := r.account(at)
	c.lose(j, lost)
	lost += takes
	j.lost, j.ends, j.expected, j.until = j.lost+lost, j.ends+lost, j.expected+lost, j.until+lost
	j.from, j.spots[0] = c.s.now+takes, at
	r.change(at.GPU, func() { r.Pool.Start(at.GPU, at.Placement, j.expected) })
	heap.Init(&c.s.running)
}

// Stop stops a running job and returns it to the queue. Its next run takes the remaining run time and the given number
// of seconds that it loses.
func (c *Control) Stop(j *Job, lost float64) {
	s := c.s
	c.lose(j, lost)
	s.segment(j)
	s.room.leave(j)
	rest := (j.ends - s.now + lost) / j.runs
	j.done = 1 - (1-j.done)*rest
	j.runs, j.estimate, j.high = j.runs*rest, j.estimate*rest, j.high*rest
	s.running = slices.DeleteFunc(s.running, func(r *Job) bool { return r == j })
	heap.Init(&s.running)
	s.absent(j, RequeueDelay)
}

// lose counts a job that is moved or stopped now.
func (c *Control) lose(j *Job, seconds float64) {
	c.s.result.Moved++
	c.s.result.lost += seconds * float64(j.units)
}

// Number returns the number of jobs that were submitted earlier.
func (j *Job) Number() int { return j.number }

// Profiles returns the profile that the job requests on each of the GPU models (Kinds), or an empty string, and
// Requests returns the first of them that is not empty.
func (j *Job) Profiles() []string { return j.profiles }
func (j *Job) Requests() string   { return j.asksFor }

// Slots returns the number of slices that the job needs at the same time.
func (j *Job) Slots() int { return j.slices() }

// Size returns the number of units of the profile that Requests returns.
func (j *Job) Size() int { return j.size }

// Spots returns the slices of a running job.
func (j *Job) Spots() []place.Spot { return j.spots }

// Estimated returns the end of a running job according to its estimated run time, and Expected returns its expected
// end. In contrast to Expected, Estimated does not take moves or corrections into account.
func (j *Job) Estimated() float64 { return j.started + j.estimate }
func (j *Job) Expected() float64  { return j.expected }

// Estimate returns the job's estimated run time in seconds.
func (j *Job) Estimate() float64 { return j.estimate }

// From returns the time at which the job started or was last moved.
func (j *Job) From() float64 { return j.from }

// counted implements room for a Scheduler that only counts the slices of jobs, without placing them on GPUs.
type counted struct {
	s    *simulation
	free int
}

func newCounted(s *simulation) *counted {
	c := &counted{s: s}
	for _, b := range s.GPUs {
		c.free += b.Grid
	}
	return c
}

func (c *counted) place(int, *reservation) (bool, *reservation) { return false, nil }

func (c *counted) start(j *Job) {
	j.units = j.size * j.slices()
	c.free -= j.units
	b := c.s.kinds[0]
	p, _ := b.ProfileIndex(j.asksFor)
	c.s.start(j, 0, b.Profiles[p].Memory())
}

func (c *counted) leave(j *Job)           { c.free += j.units }
func (c *counted) idle() int              { return c.free }
func (c *counted) fragmentation() float64 { return 0 }
