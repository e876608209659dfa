package sim

import "slices"

// queue holds those that wait, in the order of submission.
type queue struct {
	jobs []*job
	head int // those before it have left
}

func (q *queue) len() int      { return len(q.jobs) - q.head }
func (q *queue) at(k int) *job { return q.jobs[q.head+k] }
func (q *queue) push(j *job)   { q.jobs = append(q.jobs, j) }

// remove takes out the k-th.
func (q *queue) remove(k int) {
	copy(q.jobs[q.head+1:q.head+k+1], q.jobs[q.head:q.head+k])
	q.jobs[q.head] = nil
	if q.head++; q.head > 64 && q.head > len(q.jobs)/2 {
		q.jobs = slices.Delete(q.jobs, 0, q.head)
		q.head = 0
	}
}

// schedule starts what can start now.
func (s *simulation) schedule() {
	for s.queue.len() > 0 && s.turn() {
	}
	if s.Discipline == Loss && s.queue.len() > 0 {
		s.result.refused(s.queue.at(0))
		s.queue.remove(0)
	}
}

// turn gives the queue one turn; false when nothing more can start now.
func (s *simulation) turn() bool {
	switch got, r := s.room.place(0, nil); {
	case got:
		s.queue.remove(0)
		return true
	case s.Discipline != EASY || s.queue.len() == 1:
		return false
	default:
		return s.backfill(r)
	}
}

// backfillDepth is how many behind the head are looked at: slurmctld's default for bf_max_job_test (slurm.conf(5)).
const backfillDepth = 500

// backfill starts the first job behind the head that does not delay it.
func (s *simulation) backfill(r *reservation) bool {
	type need struct {
		profiles string
		slices   int
	}
	tried := map[need]float64{} // the least said duration of those that found no room
	for k := 1; k < min(s.queue.len(), 1+backfillDepth); k++ {
		j := s.queue.at(k)
		n := need{j.needs, j.slices()}
		if least, ok := tried[n]; ok && j.said >= least {
			continue
		}
		if got, _ := s.room.place(k, r); got {
			s.queue.remove(k)
			return true
		}
		tried[n] = j.said
	}
	return false
}
