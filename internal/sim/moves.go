package sim

import (
	"container/heap"
	"math"
	"slices"

	"caelum/internal/place"
	"caelum/internal/reconfigure"
)

// Moves determines when the simulation moves running jobs to other slices or stops them. Only jobs with a single slice
// are moved or stopped.
type Moves struct {
	Rule MoveRule
	// Cost is the run time, in seconds, that a job loses when it is moved or stopped: the time since its last
	// checkpoint. A job never loses more run time than has passed since its start or its last move. If Cost is +Inf, a
	// job loses its entire run.
	Cost float64
	// Beta is the Beta field of [reconfigure.LastResort], in seconds. Only StopForHead uses it.
	Beta float64
}

// MoveRule determines which jobs are moved or stopped, and when.
type MoveRule int

const (
	// MoveAfterDeparture moves instances after a job has ended, provided that the moves reduce fragmentation
	// (FragAware).
	MoveAfterDeparture MoveRule = iota + 1
	// MoveAfterRejection moves the instances on the most fragmented GPU when the head of the queue cannot start or,
	// without a queue, before a job is rejected. Each hour, it also consolidates half-full GPUs (GRMU).
	MoveAfterRejection
	// StopForHead stops jobs if the head of the queue would otherwise wait longer than the stopped jobs lose (DynaP).
	// It stops a job at most once.
	StopForHead
	// MoveForHead is the watcher's rule (`moves_per_day`) without its limit on the number of moves: like StopForHead,
	// but each stopped job must fit on other free units.
	MoveForHead
)

const (
	// lazyLoad is the load below which FragAware does not count a GPU as busy.
	lazyLoad = 0.4
	// consolidateEvery is the time between consolidations, in seconds. The method of the GRMU paper (arXiv 2502.01909)
	// consolidates GPUs periodically.
	consolidateEvery = 3600
)

// mover moves and stops the jobs of a cut.
type mover struct {
	*Moves
	c         *cut
	holders   map[place.Spot]*job
	numbered  map[int]*job // the jobs in holders, by number
	nextMerge float64      // the earliest time of the next consolidation, in seconds
}

func newMover(c *cut) *mover {
	if c.s.Moves == nil {
		return nil
	}
	return &mover{c.s.Moves, c, map[place.Spot]*job{}, map[int]*job{}, consolidateEvery}
}

// hold records that a job has started. If the simulation does not move jobs, m is nil.
func (m *mover) hold(j *job) {
	if m == nil {
		return
	}
	j.from, j.lost = j.started, 0
	m.numbered[j.number] = j
	for _, at := range j.spots {
		m.holders[at] = j
	}
}

// release records that a job has given up its slices.
func (m *mover) release(j *job) {
	if m == nil {
		return
	}
	delete(m.numbered, j.number)
	for _, at := range j.spots {
		delete(m.holders, at)
	}
}

// movable implements [reconfigure.Movable].
func (m *mover) movable(at place.Spot) (number int, ok bool) {
	j := m.holders[at]
	if j == nil || len(j.spots) > 1 {
		return 0, false
	}
	return j.number, true
}

// departed moves jobs after a job has left the given spots.
func (m *mover) departed(spots []place.Spot) {
	if m == nil || m.Rule != MoveAfterDeparture {
		return
	}
	for _, at := range spots {
		m.move(reconfigure.AfterDeparture(m.c.Pool, at.GPU, lazyLoad, m.movable))
	}
}

// rejected moves or stops jobs because the head of the queue cannot start. It reports whether the GPUs have changed.
func (m *mover) rejected() bool {
	switch {
	case m == nil:
		return false
	case m.Rule == StopForHead, m.Rule == MoveForHead:
		return m.stopForHead()
	case m.Rule != MoveAfterRejection:
		return false
	}
	plan := reconfigure.AfterRejection(m.c.Pool, m.movable)
	m.move(plan)
	if m.c.s.now < m.nextMerge {
		return plan != nil
	}
	m.nextMerge = m.c.s.now + consolidateEvery
	merge := reconfigure.Consolidate(m.c.Pool, m.movable)
	m.move(merge)
	return plan != nil || merge != nil
}

// move carries out a plan that moves jobs.
func (m *mover) move(plan reconfigure.Plan) {
	c := m.c
	for _, s := range plan {
		if s.Job == reconfigure.NoJob {
			continue // Pool.Start destroys the overlapping idle instances
		}
		j := m.numbered[s.Job]
		switch s.Do {
		case reconfigure.Destroy:
			c.s.segment(j)
			delete(m.holders, s.Spot)
			c.s.result.Destroyed++
			c.change(s.GPU, func() { c.Pool.Finish(s.GPU, s.Placement, false) })
		case reconfigure.Create, reconfigure.Take:
			takes := c.account(s.Spot)
			lost := m.lose(j)
			j.lost += lost + takes
			j.ends += lost + takes
			j.expected += lost + takes
			j.until += lost + takes
			j.from = c.s.now + takes
			j.spots[0], m.holders[s.Spot] = s.Spot, j
			c.change(s.GPU, func() { c.Pool.Start(s.GPU, s.Placement, j.expected) })
		}
	}
	if plan != nil {
		heap.Init(&c.s.running)
	}
}

// lose counts a job that is moved or stopped now and returns the run time that it loses, in seconds.
func (m *mover) lose(j *job) float64 {
	lost := min(m.Cost, m.ran(j))
	m.c.s.result.Moved++
	m.c.s.result.lost += lost * float64(j.units)
	return lost
}

// ran returns the time for which a job has run since its start or its last move, in seconds.
func (m *mover) ran(j *job) float64 { return max(0, m.c.s.now-j.from) }

// stopForHead stops jobs to make room for the head of the queue if this is worthwhile, and then selects the slice for
// the head.
func (m *mover) stopForHead() bool {
	s, head := m.c.s, m.c.s.queue.at(0)
	if head.slices() > 1 {
		return false
	}
	jobs := slices.Clone(s.running)
	slices.SortFunc(jobs, func(a, b *job) int { return a.number - b.number })
	running := make([]reconfigure.Running, len(jobs))
	for k, j := range jobs {
		running[k] = reconfigure.Running{
			Holds:    j.spots,
			Start:    max(j.from, s.now-m.Cost),
			Duration: j.expected - max(j.from, s.now-m.Cost),
			Deadline: math.Inf(1),
			Requeue:  !j.stopped && len(j.spots) == 1 && j.from <= s.now,
		}
	}
	situation := place.Situation{Pool: m.c.Pool, Now: s.now}
	last := reconfigure.LastResort{Fixed: requeueDelay, Beta: m.Beta, Move: m.Rule == MoveForHead}
	plan, _ := last.Plan(&situation, s.request(head), len(jobs), running)
	for _, step := range plan {
		switch {
		case step.Job == len(jobs):
			m.c.decided = []place.Spot{step.Spot}
		case step.Job != reconfigure.NoJob:
			m.stop(jobs[step.Job])
		}
	}
	return plan != nil
}

// stop stops a job and returns it to the queue. The job's next run takes the remaining run time plus the time that the
// job loses.
func (m *mover) stop(j *job) {
	s := m.c.s
	lost := m.lose(j)
	s.segment(j)
	s.room.leave(j)
	rest := (j.ends - s.now + lost) / j.runs
	j.done = 1 - (1-j.done)*rest
	j.runs, j.estimate, j.high, j.stopped = j.runs*rest, j.estimate*rest, j.high*rest, true
	s.running = slices.DeleteFunc(s.running, func(r *job) bool { return r == j })
	heap.Init(&s.running)
	s.absent(j, requeueDelay)
}
