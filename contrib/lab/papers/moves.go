package papers

import (
	"math"
	"slices"

	"caelum/contrib/lab/reconfigure"
	"caelum/internal/core/place"
	"caelum/internal/sim"
)

// Moves determines when running jobs are moved to other slices or stopped. Only jobs with a single slice are moved or
// stopped. Moves requires a policy that places slices on demand, and GPUs of a single model.
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

// Scheduler returns a scheduler that starts jobs as the discipline requires, and moves and stops jobs.
// [sim.Config.Moves] must be set.
func (m Moves) Scheduler(c *sim.Control) sim.Scheduler {
	return &mover{Moves: m, Control: c, stopped: map[*sim.Job]bool{}, nextMerge: consolidateEvery}
}

// mover implements [sim.Scheduler].
type mover struct {
	Moves
	*sim.Control
	stopped   map[*sim.Job]bool  // the waiting and running jobs that have been stopped
	nextMerge float64            // the earliest time of the next consolidation, in seconds
	holders   map[place.Spot]int // the index in Running of the job that holds a slice; nil if unknown
}

// Turn implements [sim.Scheduler].
func (m *mover) Turn() bool { return m.Try(0) || m.blocked() || m.Next() }

// Left implements [sim.Scheduler].
func (m *mover) Left(j *sim.Job) {
	delete(m.stopped, j)
	if m.Rule != MoveAfterDeparture {
		return
	}
	for _, at := range j.Spots() {
		m.plan(func(pool *place.Pool) reconfigure.Plan {
			return reconfigure.AfterDeparture(pool, at.GPU, lazyLoad, m.movable)
		})
	}
}

// blocked moves or stops jobs because the first job in the queue cannot start. It reports whether it has started this
// job.
func (m *mover) blocked() bool {
	switch m.Rule {
	case StopForHead, MoveForHead:
		return m.stopForHead()
	case MoveAfterRejection:
		m.plan(func(pool *place.Pool) reconfigure.Plan { return reconfigure.AfterRejection(pool, m.movable) })
		if m.Now() >= m.nextMerge {
			m.nextMerge = m.Now() + consolidateEvery
			m.plan(func(pool *place.Pool) reconfigure.Plan { return reconfigure.Consolidate(pool, m.movable) })
		}
	}
	return false
}

// movable implements [reconfigure.Movable].
func (m *mover) movable(at place.Spot) (index int, ok bool) {
	if m.holders == nil {
		m.holders = map[place.Spot]int{}
		for k, j := range m.Running() {
			if len(j.Spots()) == 1 {
				m.holders[j.Spots()[0]] = k
			}
		}
	}
	index, ok = m.holders[at]
	return index, ok
}

// plan makes a plan that moves jobs and carries it out.
func (m *mover) plan(make func(*place.Pool) reconfigure.Plan) {
	m.holders = nil
	plan := make(m.Pool())
	running := slices.Clone(m.Running()) // Put changes the order
	for _, s := range plan {
		switch {
		case s.Job == reconfigure.NoJob: // Put destroys the overlapping idle instances
		case s.Do == reconfigure.Destroy:
			m.Lift(running[s.Job])
		case s.Do == reconfigure.Create, s.Do == reconfigure.Take:
			j := running[s.Job]
			m.Put(j, s.Spot, m.loses(j))
		}
	}
}

// loses returns the run time, in seconds, that a job loses if it is moved or stopped now. It is at most the time since
// its start or its last move.
func (m *mover) loses(j *sim.Job) float64 { return min(m.Cost, max(0, m.Now()-j.From())) }

// stopForHead stops jobs to make room for the first job in the queue if this is worthwhile, and then starts this job.
func (m *mover) stopForHead() bool {
	head := m.Job(0)
	if head.Slots() > 1 {
		return false
	}
	jobs := slices.Clone(m.Running())
	slices.SortFunc(jobs, func(a, b *sim.Job) int { return a.Number() - b.Number() })
	running := make([]reconfigure.Running, len(jobs))
	for k, j := range jobs {
		from := max(j.From(), m.Now()-m.Cost)
		running[k] = reconfigure.Running{
			Holds:    j.Spots(),
			Start:    from,
			Duration: j.Expected() - from,
			Deadline: math.Inf(1),
			Requeue:  !m.stopped[j] && len(j.Spots()) == 1 && j.From() <= m.Now(),
		}
	}
	situation := place.Situation{Pool: m.Pool(), Now: m.Now()}
	last := reconfigure.LastResort{Fixed: sim.RequeueDelay, Beta: m.Beta, Move: m.Rule == MoveForHead}
	plan, _ := last.Plan(&situation, m.Request(head), len(jobs), running)
	for _, step := range plan {
		switch {
		case step.Job == len(jobs):
			m.Start(head, []place.Spot{step.Spot})
		case step.Job != reconfigure.NoJob:
			j := jobs[step.Job]
			m.stopped[j] = true
			m.Stop(j, m.loses(j))
		}
	}
	return plan != nil
}
