package offer

import (
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// The code in this file gives a job a larger slice than requested if the shorter run time justifies this. A job
// requests the smallest profile with enough memory, on which it might run slowly while other GPUs are idle.
//
// A job on profile p runs for t_p seconds and uses a fraction u_p of a GPU. Meanwhile, other jobs have fewer GPU
// resources available, and their total delay is assumed to be price x t_p x u_p. The job is given the free profile with
// the smallest t_p + price x t_p x u_p. If a larger slice will soon become free, the job at the head of the queue can
// wait for it, but only if its run time is known from earlier runs. If a time limit of one day were used instead, a job
// that runs for a minute would wait for hours. The measurements are in the section "Sizes of slices" in
// contrib/lab/results.md.
//
// A large slice must not delay other jobs, so Make plans twice. The first plan multiplies the price by the constant
// fair, and therefore starts more jobs on smaller slices. The second plan uses the real price. Make returns the second
// plan only if it starts all jobs that the first one starts and does not delay the first waiting job's reservation.

// Size is a profile that a job can be given instead of the requested one.
type Size struct {
	Profile string
	// Takes is the expected run time on the profile, divided by the run time on the requested profile.
	Takes float64
}

// Takes returns the expected run time on a profile, divided by the expected run time on the requested profile. The
// result is 1 if the profile is not one of the Want's sizes.
func (w Want) Takes(profile string) float64 {
	for _, s := range w.Sizes {
		if s.Profile == profile {
			return s.Takes
		}
	}
	return 1
}

// takes returns a job's expected run time on a profile, divided by its expected run time on the requested profile.
func (j *Job) takes(profile string) float64 {
	for _, w := range j.Wants {
		if takes := w.Takes(profile); takes != 1 {
			return takes
		}
	}
	return 1
}

// Growable reports whether a job can be given a larger slice than requested and runs long enough to benefit from it
// even after a short delay. A plan makes no speculative offers for growable jobs, because these jobs would then start
// on the requested profile.
func Growable(j Job) bool {
	return j.RunTime >= shortJob && slices.ContainsFunc(j.Wants, func(w Want) bool { return len(w.Sizes) > 0 })
}

// shortJob is a run time in seconds. It is at least ten times the delay of one to two seconds after which a job without
// a speculative offer starts.
const shortJob = 20

// sizing holds the inputs for the choice of a size.
type sizing struct {
	price   float64 // price of a second of a whole GPU, in seconds of other jobs' delay
	waiting int     // the number of jobs without spots, including the job to be placed
	mayHold bool    // the job can wait for a larger slice because its run time is known
}

// The values of the sizing constants were chosen with MISO's training jobs on 4 A100s, in workloads of 100 jobs (seeds
// 1 to 20) and of 600 jobs (seeds 1 to 3) with one job every 0.5 to 16 minutes, and with randomly drawn jobs (seeds 1
// to 20).
//
// The price of a second of a whole GPU is the number of delayed jobs, divided by the number of GPUs. A waiting job
// counts as priceWaiting jobs, because it does not need all GPUs. A running job counts as priceRunning jobs, which
// represent the jobs that will be submitted while it occupies its slice.
//
// At the beginning of a period of high load, few jobs are waiting or running, but many more will be submitted during
// their runs. If arrivalShare times the expected number of these submissions (Cluster.Arrivals) exceeds the number of
// running jobs, this product counts instead. It is limited to mostArrivals times the number of running and waiting
// jobs, because jobs that are submitted together are often not followed by others.
//
// While the head of the queue is waiting for a larger slice, it delays each of the other waiting jobs by heldShare
// times its own wait.
const (
	priceWaiting = 0.4
	priceRunning = 0.15
	arrivalShare = 1.5
	mostArrivals = 4
	heldShare    = 0.5
)

// fair is the factor by which the price is multiplied in the first plan. With a larger factor, the first plan prefers
// the requested profiles. If these are slow, mean turnarounds become up to 20% longer, because jobs that start on small
// slices occupy them for a long time.
const fair = 3

// setPrice sets the price of a second of a whole GPU for the next job.
func (p *planner) setPrice() {
	p.waiting = len(p.jobs) - p.placed
	arrivals := min(arrivalShare*p.Arrivals, mostArrivals*float64(p.running+len(p.jobs)))
	later := max(float64(p.running+p.placed), arrivals)
	delayed := priceWaiting*float64(p.waiting) + priceRunning*later
	p.price = p.scarcity * delayed / float64(max(p.gpus, 1))
}

// countPlaced sets the number of jobs with spots.
func (p *planner) countPlaced() {
	p.placed = 0
	for _, spots := range p.plan.Spots {
		p.placed += min(len(spots), 1)
	}
}

// chooseSize returns the placement with the smallest cost for a job that needs one slice. requested is the policy's
// placement of the requested profile. A placement on which the job is expected to meet its deadline takes precedence
// over all others.
func (c *Cluster) chooseSize(s *place.Situation, w Want, j *Job, requested place.Choice) place.Choice {
	runs := j.RunTime
	best, least, late := requested, math.Inf(1), true
	if requested.Verdict == place.Here {
		least, late = c.cost(s, requested, 1), j.tooLate(c.Now, runs)
	}
	for _, size := range w.Sizes {
		choice := c.Policy.Choose(s, place.Request{Profile: size.Profile, Duration: runs * size.Takes})
		wait := 0.0
		misses := j.tooLate(c.Now, runs*size.Takes)
		if choice.Verdict != place.Here {
			choice, wait = c.nextFree(s, j, size.Profile)
			misses = j.tooLate(c.Now+wait, runs*size.Takes)
			if choice.Verdict == place.Nowhere || misses {
				continue
			}
			wait *= (1 + heldShare*float64(c.waiting)) / runs
		}
		if cost := c.cost(s, choice, size.Takes) + wait; misses == late && cost < least || late && !misses {
			best, least, late = choice, cost, misses
		}
	}
	return best
}

// cost returns the run time on a placement plus the delay that the placement causes to other jobs, in multiples of
// the run time on the requested profile.
func (c *Cluster) cost(s *place.Situation, at place.Choice, takes float64) float64 {
	b := s.Pool.GPU(at.GPU).Model
	return costOf(b, b.Placements[at.Placement].Profile, takes, c.price)
}

// costOf is like cost, but for the k-th profile of a GPU model.
func costOf(b *mig.Model, k int, takes, price float64) float64 {
	return takes * (1 + price*float64(b.Profiles[k].Size)/float64(b.Grid))
}

// PrefersLarger reports whether a job that must wait would be given a larger profile than requested if all profiles of
// GPU model b were free.
func (p Plan) PrefersLarger(w Want, b *mig.Model) bool {
	if b == nil {
		return false
	}
	requested, ok := b.ProfileIndex(w.Needed())
	return ok && slices.ContainsFunc(w.Sizes, func(s Size) bool {
		k, ok := b.ProfileIndex(s.Profile)
		return ok && costOf(b, k, s.Takes, p.Price) < costOf(b, requested, 1, p.Price)
	})
}

// nextFree returns the placement of a profile that is expected to become free first, with the verdict Hold. wait is the
// time, in seconds, until it is free. The verdict is Nowhere if the job must not wait, or if this time is unknown. A
// job that is not at the head of the queue can wait only if it would miss its deadline on the requested profile.
func (c *Cluster) nextFree(s *place.Situation, j *Job, profile string) (next place.Choice, wait float64) {
	if !c.mayHold && !(j.Learned && j.tooLate(c.Now, j.RunTime)) {
		return next, 0
	}
	wait = math.Inf(1)
	for k := range s.Pool.Len() {
		g := s.Pool.GPU(k)
		if g.Model == nil {
			continue
		}
		p, ok := g.Model.ProfileIndex(profile)
		if !ok {
			continue
		}
		for i := range (g.Model.OfProfile(p) & g.Offerable).Indices() {
			if in := s.Pool.FreeAt(k, i) - s.Now; in > 0 && in < wait {
				next, wait = place.Choice{Verdict: place.Hold, GPU: k, Placement: i}, in
			}
		}
	}
	return next, wait
}

// enlarged returns a second plan with larger slices, or p if that plan would delay a job.
func (p *planner) enlarged() *planner {
	if !p.growable() {
		return p
	}
	p.swap()
	second := newPlanner(p.Cluster, p.jobs, p.strict)
	second.scarcity = 1
	second.planQueue()
	if second.delays(p) {
		second.swap()
		p.swap()
		return p
	}
	return second
}

// growable reports whether the plan contains spots for a job that can be given a larger slice.
func (p *planner) growable() bool {
	for k, j := range p.jobs {
		if p.plan.Spots[k] != nil && slices.ContainsFunc(j.Wants, func(w Want) bool { return len(w.Sizes) > 0 }) {
			return true
		}
	}
	return false
}

// delays reports whether any job would start later with this plan than with the first. A job that has spots, but
// whose offers filterByQueueOrder withdrew, starts with one of the next plans.
func (p *planner) delays(first *planner) bool {
	mine, theirs := p.starting(), first.starting()
	for k := range p.jobs {
		if theirs[k] != nil && mine[k] == nil || first.plan.Spots[k] != nil && p.plan.Spots[k] == nil {
			return true
		}
	}
	a, b := p.plan.Reserved, first.plan.Reserved
	return a != nil && b != nil && a.Job == b.Job && a.At > b.At
}

// starting returns the spots of the jobs that the plan makes slurmctld start.
func (p *planner) starting() [][]Spot {
	plan := p.plan
	defer func() { p.plan = plan }()
	p.plan.Offers, p.plan.Spots = slices.Clone(plan.Offers), slices.Clone(plan.Spots)
	p.filterByQueueOrder()
	return p.plan.Spots
}
