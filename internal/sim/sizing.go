package sim

import (
	"slices"

	"caelum/internal/offer"
	"caelum/internal/trace"
)

// Sizing determines which profile a job with Speed gets.
type Sizing int

const (
	// Tightest gives each job the profile that it requests, which is the smallest one that satisfies its need.
	Tightest Sizing = iota
	// Adaptive may give a job a larger profile, as package offer decides. It requires a policy, and FIFO or EASY.
	Adaptive
)

// sizes returns the larger profiles that a job may get, with the run times that the planner expects.
func (s *simulation) sizes(j *job) (all []offer.Size) {
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
			if p.Name != j.asksFor && !known && enough(p, b.Profiles[least]) && j.SpeedOn(p.Name) > 0 {
				all = append(all, offer.Size{Profile: p.Name, Takes: requested / expected.SpeedOn(p.Name)})
			}
		}
	}
	return all
}

// expected returns a job with the speeds that the planner expects.
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

// startPlanned starts the jobs that package offer's plan starts now. It is used instead of turn if jobs get adaptive
// sizes.
func (c *cut) startPlanned() {
	s := c.s
	c.Speculative = map[string]bool{} // there are no offers
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

// plan makes package offer's plan for the current queue.
func (c *cut) plan() offer.Plan {
	s := c.s
	c.foresee()
	c.gather(-1)
	var jobs []*offer.Job
	for k := range s.queue.len() {
		j := s.queue.at(k)
		j.offer.RunTime, _ = s.total(j.estimate, 0)
		jobs = append(jobs, &j.offer)
	}
	return offer.Make(&c.Cluster, jobs, s.Discipline == FIFO)
}

// estimateGot returns the estimated run time of a running job on the slice that it got, in seconds.
func (s *simulation) estimateGot(j *job) float64 {
	if len(j.spots) == 0 {
		return j.estimate
	}
	return j.estimate * j.offer.Wants[0].Takes(s.profile(j.spots[0]).Name)
}
