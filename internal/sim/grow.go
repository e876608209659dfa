package sim

import (
	"cmp"
	"container/heap"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// Memory determines how much memory jobs request and need. A job that runs out of memory is requeued.
type Memory interface {
	// Profile returns the profile that a job requests on a GPU model, on which it needs the profile own. had is the
	// memory, in MiB, with which the job ran out of memory in its last run, or 0 before its first run.
	Profile(j trace.Job, b *mig.Model, own string, had float64) string
	// Lasts returns the fraction of its run after which a job runs out of memory on a slice with the given memory, in
	// MiB, or 1 if the memory is sufficient.
	Lasts(j trace.Job, memory float64) float64
}

// RequeueDelay is the time, in seconds, before a requeued job can start. slurmctld first waits for the job's
// credentials to expire after 120 s (cred_expire of AuthInfo, slurm.conf(5)).
const RequeueDelay = 121

// ask makes a job request the profiles that Memory determines.
func (s *simulation) ask(j *Job, had float64) {
	for k, b := range s.kinds {
		if own, ok := j.On(b); ok {
			j.profiles[k] = s.Memory.Profile(j.Job, b, own, had)
		}
	}
	s.settle(j)
}

// absent removes a job from the cluster after its run has ended and returns it to the queue after delay seconds.
func (s *simulation) absent(j *Job, delay float64) {
	j.units, j.spots, j.numbers = 0, nil, nil
	j.since, j.ends = s.now, s.now+delay
	heap.Push(&s.away, j)
}

// Growth determines what happens to jobs whose slices might not have enough memory. The simulation calls the methods in
// order of simulated time.
type Growth interface {
	// Submitted returns the profile that a job requests when its user submits it.
	Submitted(j trace.Job) (profile string)
	// Started returns the run time, in seconds, of a job that has just started on a slice of the given profile.
	Started(j trace.Job, profile string) (seconds float64)
	// Ended determines what happens after a run that has just ended. now is the time at which the run ended, in
	// seconds.
	Ended(j trace.Job, now float64) Next
}

// Next describes what happens to a job after a run. The zero value means that the job has ended.
type Next struct {
	// Requeue is the profile that the job is requeued with, or an empty string. The job keeps its place in the queue
	// and can restart after Delay seconds, or after RequeueDelay if Delay is 0.
	Requeue string
	Delay   float64
	// Resubmit is the time, in seconds, after which the user resubmits the job, or 0. The job then goes to the end of
	// the queue.
	Resubmit float64
}

// again counts a run that has just ended and reruns the job if Growth requires it. It returns false if the job has
// ended.
func (s *simulation) again(j *Job) bool {
	next := s.Growth.Ended(j.Job, s.now)
	j.outOfMemory = next != Next{}
	s.count(j)
	switch j.resubmits = false; {
	case !j.outOfMemory:
		return false
	case next.Requeue != "":
		s.demand(j, next.Requeue)
		s.absent(j, cmp.Or(next.Delay, RequeueDelay))
	default:
		j.resubmits = true
		s.absent(j, next.Resubmit)
	}
	return true
}

// resubmit puts a job at the end of the queue, as if its user had resubmitted it.
func (s *simulation) resubmit(j *Job) {
	j.submitted = s.now
	s.demand(j, s.Growth.Submitted(j.Job))
}

// demand makes a job request the given profile.
func (s *simulation) demand(j *Job, profile string) {
	j.profiles[0] = profile
	s.settle(j)
}
