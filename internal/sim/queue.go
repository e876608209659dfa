package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/offer"
)

// queue holds the waiting jobs in order of submission.
type queue struct {
	jobs []*job
	head int // index of the first waiting job
}

func (q *queue) len() int      { return len(q.jobs) - q.head }
func (q *queue) at(k int) *job { return q.jobs[q.head+k] }
func (q *queue) push(j *job)   { q.jobs = append(q.jobs, j) }

// insert returns a job to the queue, ahead of all jobs that were submitted later.
func (q *queue) insert(j *job) {
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
	for s.queue.len() > 0 && s.turn() {
	}
	if s.Discipline == Loss && s.queue.len() > 0 {
		s.result.Refused++
		s.queue.remove(0)
	}
}

// turn starts at most one job or one batch. It returns false if no further job can start now.
func (s *simulation) turn() bool {
	switch s.Discipline {
	case Batches:
		return s.batch()
	case Skip:
		return s.any(0, nil, func(k int) int { return k })
	case Smallest:
		order := make([]int, s.queue.len())
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.queue.at(a).size, s.queue.at(b).size) })
		return s.any(0, nil, func(k int) int { return order[k] })
	}
	got, r := s.room.place(0, nil)
	if c, ok := s.room.(*cut); ok && !got && c.mover.rejected() {
		got, r = s.room.place(0, nil)
	}
	if got {
		s.queue.remove(0)
		return true
	}
	return s.Discipline == EASY && s.any(1, r, func(k int) int { return k }) // backfill
}

// any searches the queue for the first job that fits and does not delay the reservation, and starts it. order maps a
// position to a job's index in the queue. The search begins at position from.
func (s *simulation) any(from int, r *reservation, order func(int) int) bool {
	type need struct {
		profiles string
		slices   int
	}
	tried := map[need]float64{} // for each need, the shortest estimate of a job that did not fit
	for k := from; k < min(s.queue.len(), from+offer.Depth); k++ {
		at := order(k)
		j := s.queue.at(at)
		n := need{j.asks, j.slices()}
		if least, ok := tried[n]; ok && j.estimate >= least {
			continue
		}
		if got, _ := s.room.place(at, r); got {
			s.queue.remove(at)
			return true
		}
		tried[n] = j.estimate
	}
	return false
}
