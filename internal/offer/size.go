package offer

import (
	"math"
	"slices"

	"caelum/internal/place"
)

// The code in this file gives jobs larger slices than they request, if their run times justify this. A job requests the
// smallest profile that satisfies its need. With that profile alone, jobs would run slowly beside idle GPUs.
//
// A job on profile p runs for t_p seconds and uses the share u_p of a GPU. While it runs, other jobs get less of the
// GPUs: the delay of all other jobs together is assumed to be price x t_p x u_p. The job gets the free profile with the
// smallest t_p + price x t_p x u_p. docs/results.md, "Sizes of slices", shows the measurements.
//
// A larger slice must not delay other jobs of the queue. Make therefore plans twice, first with the requested profiles
// only, and uses the second plan, with sizes, only if it starts all jobs that the first plan starts and reserves no
// later start for the first job that has to wait.

// Size is a profile that a job may get instead of the profile that it requests.
type Size struct {
	Profile string
	// Takes is the expected run time on the profile, divided by that on the requested profile.
	Takes float64
}

// Takes returns the expected run time on a profile, divided by that on the requested profile. It returns 1 if the
// profile is not one of the want's sizes.
func (w Want) Takes(profile string) float64 {
	for _, s := range w.Sizes {
		if s.Profile == profile {
			return s.Takes
		}
	}
	return 1
}

// takes returns the expected run time of a job on a profile, divided by that on the requested profile.
func (j *Job) takes(profile string) float64 {
	for _, w := range j.Wants {
		if takes := w.Takes(profile); takes != 1 {
			return takes
		}
	}
	return 1
}

// The price of a second of a whole GPU is the number of jobs that it delays, divided by the number of GPUs. A waiting
// job counts as delayed with the share priceWaiting, because it does not need all of the GPUs. A running job counts
// with the share priceRunning, for the jobs that will be submitted while it runs. The values were chosen on MISO's
// training jobs (seeds 1 to 20). With 0.2 to 0.5 and 0.06 to 0.3, mean turnarounds differ by at most 2%.
const (
	priceWaiting = 0.3
	priceRunning = 0.15
)

// price returns the price of a second of a whole GPU, in seconds of delay.
func price(waiting, running, gpus int) float64 {
	return (priceWaiting*float64(waiting) + priceRunning*float64(running)) / float64(max(gpus, 1))
}

// chooseSize returns the placement with the smallest cost for a job that wants one slice. requested is the
// policy's placement of the requested profile.
func (c *Cluster) chooseSize(s *place.Situation, w Want, runs float64, requested place.Choice) place.Choice {
	best, least := requested, math.Inf(1)
	if requested.Verdict == place.Here {
		least = c.cost(s, requested, 1)
	}
	for _, size := range w.Sizes {
		choice := c.Policy.Choose(s, place.Request{Profile: size.Profile, Duration: runs * size.Takes})
		if choice.Verdict != place.Here {
			continue
		}
		if cost := c.cost(s, choice, size.Takes); cost < least {
			best, least = choice, cost
		}
	}
	return best
}

// cost returns the run time on a placement and the delay that it causes, divided by the run time on the requested
// profile.
func (c *Cluster) cost(s *place.Situation, at place.Choice, takes float64) float64 {
	b := s.Pool.GPU(at.GPU).Model
	return takes * (1 + c.price*float64(b.Placements[at.Placement].Size)/float64(b.Grid))
}

// Growable reports whether a job may get a larger slice than it requests, and runs long enough to benefit from it even
// if it starts a little later. No slices are offered speculatively for such a job, because it would start on a slice of
// the requested profile.
func Growable(j Job) bool {
	return j.RunTime >= shortJob && slices.ContainsFunc(j.Wants, func(w Want) bool { return len(w.Sizes) > 0 })
}

// shortJob is a run time in seconds. A job that is not started by a speculative offer starts one to two seconds later,
// which is less than a tenth of this run time.
const shortJob = 20

// withSizes returns the planner's queue planned again with the sizes of the jobs, if this delays no job. Otherwise it
// returns p.
func (p *planner) withSizes() *planner {
	if !p.sizable() {
		return p
	}
	p.swap()
	sized := newPlanner(p.Cluster, p.jobs, p.strict)
	sized.sizing = true
	sized.planQueue()
	if sized.delays(p) {
		sized.swap()
		p.swap()
		return p
	}
	return sized
}

// sizable reports whether the plan contains spots for a job that may get a larger slice.
func (p *planner) sizable() bool {
	for k, j := range p.jobs {
		if p.plan.Spots[k] != nil && slices.ContainsFunc(j.Wants, func(w Want) bool { return len(w.Sizes) > 0 }) {
			return true
		}
	}
	return false
}

// delays reports whether a job would start later with this plan than with the other plan, which has no sizes. A job
// that has spots but is not started by this plan (see filterByQueueOrder) is started by one of the next plans.
func (p *planner) delays(other *planner) bool {
	mine, theirs := p.starting(), other.starting()
	for k := range p.jobs {
		if theirs[k] != nil && mine[k] == nil || other.plan.Spots[k] != nil && p.plan.Spots[k] == nil {
			return true
		}
	}
	a, b := p.plan.Reserved, other.plan.Reserved
	return a != nil && b != nil && a.Job == b.Job && a.At > b.At
}

// starting returns the spots of the jobs that slurmctld would start with this plan.
func (p *planner) starting() [][]Spot {
	plan := p.plan
	defer func() { p.plan = plan }()
	p.plan.Offers, p.plan.Spots = slices.Clone(plan.Offers), slices.Clone(plan.Spots)
	p.filterByQueueOrder()
	return p.plan.Spots
}
