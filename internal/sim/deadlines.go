package sim

import (
	"fmt"
	"math"
)

// Deadlines assigns deadlines to some of the jobs (--deadline). A job's latest start is its deadline minus its time
// limit, which serves as the estimated run time. The slack of a job is the time from its submission to its latest
// start.
type Deadlines struct {
	Share    float64 // the fraction of jobs that have a deadline, from 0 to 1
	From, To float64 // the range of the slacks, as multiples of the time limit; uniformly distributed
	Seed     uint64
	Use      DeadlineUse
	// Equal means that all jobs have the same priority, so that only their submission times determine slurmctld's
	// order. Otherwise, jobs that are submitted earlier have a higher priority.
	Equal bool
}

// DeadlineUse determines which programs know the deadlines.
type DeadlineUse int

const (
	// DeadlinesCounted means that neither slurmctld nor the plan knows the deadlines, as if the jobs had no deadlines.
	// The simulation counts the jobs that end in time.
	DeadlinesCounted DeadlineUse = iota
	// DeadlinesInSlurm means that slurmctld removes jobs that have not started by their latest start, but the plan does
	// not know the deadlines.
	DeadlinesInSlurm
	// DeadlinesInPlan means that slurmctld removes such jobs and the plan uses the deadlines, as in production.
	DeadlinesInPlan
)

// check returns an error if the simulation does not support deadlines in combination with the rest of the
// configuration.
func (d *Deadlines) check(c *Config) error {
	switch {
	case d == nil:
		return nil
	case c.Policy == nil || c.Discipline != FIFO && c.Discipline != EASY || c.Stay || c.Memory != nil ||
		c.Growth != nil:
		return fmt.Errorf("deadlines require a placement policy, a FIFO or EASY queue and jobs that end, without " +
			"memory predictions or growth")
	case !(d.Share >= 0 && d.Share <= 1 && d.From >= 0 && d.To >= d.From && d.To < math.Inf(1)):
		return fmt.Errorf("a share of %v with slacks from %v to %v; the share must be from 0 to 1, and the slacks at "+
			"least 0", d.Share, d.From, d.To)
	}
	return nil
}

// setDeadline sets the deadline of a job and the related fields of its offer.Job.
func (s *simulation) setDeadline(j *Job) {
	d := s.Deadlines
	if d == nil {
		return
	}
	if j.deadline == 0 {
		j.deadline = math.Inf(1)
		limit := s.estimate(j.Job)
		if rng := Chance(d.Seed+deadlineSeed, j.Job); rng.Float64() < d.Share && !math.IsInf(limit, 1) {
			j.latest = j.Submit + limit*(d.From+(d.To-d.From)*rng.Float64())
			j.deadline = j.latest + limit
		}
	}
	if d.Equal {
		j.offer.Priority = 1
	}
	if d.Use == DeadlinesInPlan && j.hasDeadline() {
		j.offer.Deadline, j.offer.LatestStart = j.deadline, j.latest
	}
}

// deadlineSeed is added to the seed, so that the deadlines do not depend on the jobs' time limits.
const deadlineSeed = 1 << 32

func (j *Job) hasDeadline() bool { return j.deadline > 0 && !math.IsInf(j.deadline, 1) }

// expire removes the waiting jobs that can no longer meet their deadlines, as slurmctld does.
func (s *simulation) expire() {
	if s.Deadlines == nil || s.Deadlines.Use == DeadlinesCounted {
		return
	}
	for k := s.queue.len() - 1; k >= 0; k-- {
		if j := s.queue.at(k); j.hasDeadline() && s.now > j.latest {
			s.queue.remove(k)
			s.result.Missed++
			s.result.Removed++
		}
	}
}

// countDeadline counts a job that has started.
func (r *Result) countDeadline(j *Job) {
	const rounding = 1e-6 // seconds
	switch {
	case !j.hasDeadline():
		r.Others.Add(j.waited)
	case j.ends <= j.deadline+rounding:
		r.Met++
	default:
		r.Missed++
	}
}
