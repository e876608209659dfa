package sim

import (
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// Sizing determines which profile is assigned to a job whose Speed is set.
type Sizing int

const (
	// Tightest gives each job the requested profile, which is the smallest sufficient one.
	Tightest Sizing = iota
	// Adaptive can give a job a larger profile, which package offer chooses. It requires a policy and the FIFO or EASY
	// discipline.
	Adaptive
)

// sizes returns the larger profiles that a job can be given, with the run times that the planner expects on them.
func (s *simulation) sizes(j *Job) (all []offer.Size) {
	if s.Sizing != Adaptive || j.Speed == nil || j.slices() > 1 {
		return nil
	}
	expected := s.expected(j.Job)
	requested := expected.SpeedOn(j.asksFor)
	for k, b := range s.kinds {
		least, ok := b.ProfileIndex(j.profiles[k])
		if !ok {
			continue
		}
		for _, p := range b.Profiles {
			known := slices.ContainsFunc(all, func(z offer.Size) bool { return z.Profile == p.Name })
			if p.Name == mig.Full {
				continue
			}
			if p.Name != j.asksFor && !known && enough(p, b.Profiles[least]) && j.SpeedOn(p.Name) > 0 {
				all = append(all, offer.Size{Profile: p.Name, Takes: requested / expected.SpeedOn(p.Name)})
			}
		}
	}
	return all
}

// expected returns a copy of the job with the speeds that the planner expects.
func (s *simulation) expected(j trace.Job) trace.Job {
	if s.Speeds == nil || j.Speed == nil {
		return j
	}
	speeds := map[string]float64{}
	for profile := range j.Speed {
		speeds[profile] = s.Speeds(j, profile)
	}
	j.Speed = speeds
	return j
}

// recordSubmission records a submission for the choice of sizes.
func (s *simulation) recordSubmission(j *Job) {
	if s.Sizing != Adaptive {
		return
	}
	submission := offer.Submission{At: s.now}
	if j.offer.Learned {
		submission.RunTime = s.runTime(j)
	}
	if len(s.earlier) == 2*place.RecentKept {
		s.earlier = slices.Delete(s.earlier, 0, place.RecentKept)
	}
	s.earlier = append(s.earlier, submission)
}

// startPlanned starts the jobs that start now according to package offer's plan. It replaces turn if jobs are given
// adaptive sizes or if the share of full GPUs is limited.
func (c *cut) startPlanned() {
	s := c.s
	c.Speculative = map[string]bool{} // no speculative offers
	plan := c.plan()
	for k := len(plan.Spots) - 1; k >= 0; k-- {
		if plan.Spots[k] == nil {
			continue
		}
		j := s.queue.at(k)
		s.queue.remove(k)
		c.start(j, plan.Spots[k])
	}
}

// plan returns package offer's plan for the current queue.
func (c *cut) plan() offer.Plan {
	s := c.s
	s.expire()
	c.foresee()
	c.gather()
	c.Arrivals = offer.ExpectedArrivals(s.earlier, s.now)
	var jobs []*offer.Job
	for k := range s.queue.len() {
		j := s.queue.at(k)
		j.offer.RunTime, j.offer.Waited = s.runTime(j), s.now-j.since
		jobs = append(jobs, &j.offer)
	}
	return offer.Make(&c.Cluster, jobs, s.Discipline == FIFO)
}

// takes returns a running job's estimated run time on its slice, divided by its estimated run time on the requested
// profile. The result is 1 if the estimate is a time limit, because time limits do not depend on the slice.
func (s *simulation) takes(j *Job) float64 {
	if len(j.spots) == 0 || !j.offer.Learned {
		return 1
	}
	return j.offer.Wants[0].Takes(s.profile(j.spots[0]).Name)
}
