package sim

import (
	"math"
	"slices"
)

// queue holds the waiting jobs in order of submission.
type queue struct {
	jobs []*Job
	head int // index of the first waiting job
}

func (q *queue) len() int      { return len(q.jobs) - q.head }
func (q *queue) at(k int) *Job { return q.jobs[q.head+k] }
func (q *queue) push(j *Job)   { q.jobs = append(q.jobs, j) }

// insert returns a job to the queue, ahead of all jobs that were submitted later.
func (q *queue) insert(j *Job) {
	k := len(q.jobs)
	for k > q.head && q.jobs[k-1].submitted > j.submitted {
		k--
	}
	q.jobs = slices.Insert(q.jobs, k, j)
}

// remove removes the k-th job.
func (q *queue) remove(k int) {
	copy(q.jobs[q.head+1:q.head+k+1], q.jobs[q.head:q.head+k])
	q.jobs[q.head] = nil
	if q.head++; q.head > 64 && q.head > len(q.jobs)/2 {
		q.jobs = slices.Delete(q.jobs, 0, q.head)
		q.head = 0
	}
}

// schedule starts all jobs that can start now or, with Offers, schedules slurmctld's next pass.
func (s *simulation) schedule() {
	switch {
	case s.offers != nil:
		s.offers.happened()
		return
	case s.Offers: // fixed layouts
		s.tick = min(s.tick, math.Floor(s.now)+1)
		return
	}
	s.startAll()
}

// startAll starts all jobs that can start now, without offers.
func (s *simulation) startAll() {
	if s.Sizing == Adaptive || s.planned {
		s.room.(*cut).startPlanned()
		return
	}
	turn := s.turn
	if s.scheduler != nil {
		turn = s.scheduler.Turn
	}
	for s.queue.len() > 0 && turn() {
	}
	if s.Discipline == Loss && s.queue.len() > 0 {
		s.result.Refused++
		s.queue.remove(0)
	}
}

// turn starts at most one job, as Discipline requires. It returns false if no further job can start now.
func (s *simulation) turn() bool {
	got, r := s.room.place(0, nil)
	if got {
		s.queue.remove(0)
		return true
	}
	inOrder := func(k int) int { return k }
	return s.Discipline == EASY && s.control.Search(1, inOrder, func(k int) bool { return s.try(k, r) }) // backfill
}

// try starts the k-th job if it fits and does not delay the reservation r, which may be nil.
func (s *simulation) try(k int, r *reservation) bool {
	got, _ := s.room.place(k, r)
	if got {
		s.queue.remove(k)
	}
	return got
}
