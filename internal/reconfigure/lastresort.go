package reconfigure

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// Running is a job that holds instances.
type Running struct {
	Holds    []place.Spot
	Start    float64 // seconds, on the scale of Situation.Now
	Duration float64 // the run time from its beginning, in seconds; +Inf if unknown
	Deadline float64 // its deadline in seconds; +Inf if there is none
	// Requeue means that the job may be stopped and started from its beginning. If a caller never stops a job twice,
	// two jobs cannot stop each other repeatedly.
	Requeue bool
}

// LastResort decides between waiting and stopping jobs for a request that fits nowhere (reconfiguration-last of DynaP).
// Jobs are stopped if
//
//	C_r - C_w <= Beta
//
// C_r is Fixed plus the longest run time that any of the stopped jobs loses. C_w is the time that the request would
// otherwise wait, until the jobs in its way have ended on the GPU where this happens first. C_w must be the minimum
// over all GPUs, not only the value of the candidate, because stopping jobs on one GPU gains nothing if another GPU
// becomes free in a minute.
//
// A job is stopped only if it may be requeued, and if it would still meet its deadline when it starts again on the next
// free spot. A job is not stopped so that another job of the same profile can take its placement. That would be
// preemption, and the layout of the GPU would not change.
type LastResort struct {
	// Fixed is the total time, in seconds, to stop jobs, to destroy and create instances, and
	// to wait until a requeued job may start. With Slurm 22.05 it is about 120.
	Fixed float64
	Beta  float64 // in seconds
}

// Plan returns a plan that makes the request fit now. job is the index of the request's job, which the steps of the
// plan contain. Plan also returns the time at which the request fits without a plan, in seconds: +Inf if unknown, Now
// if the request already fits. The plan is nil if no plan is worth its cost. The cheapest plan comes first. Ties go to
// the lowest GPU, then to the lowest start.
func (c LastResort) Plan(s *place.Situation, r place.Request, job int, jobs []Running) (plan Plan, until float64) {
	options, until := optionsFor(s, r, jobs)
	if until <= s.Now {
		return nil, s.Now
	}
	for _, o := range options {
		if c.Fixed+o.lost-(until-s.Now) > c.Beta {
			break
		}
		plan := evict(s.Pool, o.Spot, o.stop, jobs, job)
		if c.inTime(s, plan, r, o.Spot, o.stop, jobs) {
			return plan, until
		}
	}
	return nil, until
}

// option is a spot for a request, with the jobs that have to be stopped for it.
type option struct {
	place.Spot
	stop []int
	lost float64 // the longest time that one of these jobs has run, in seconds
}

// optionsFor returns the spots that a request could take if jobs are stopped, ordered by the run time that is lost,
// then by GPU, then by start. until is the time at which the request fits without stopping jobs, in seconds.
func optionsFor(s *place.Situation, r place.Request, jobs []Running) (all []option, until float64) {
	owner := map[place.Spot]int{}
	for j, run := range jobs {
		for _, at := range run.Holds {
			owner[at] = j
		}
	}
	until = math.Inf(1)
	for k := range s.Pool.Len() {
		g := s.Pool.GPU(k)
		for i := range candidates(g, r.Profile).Indices() {
			until = min(until, roomFrom(g, i, s.Now))
			if g.Busy.Has(i) {
				continue
			}
			o := option{Spot: place.Spot{GPU: k, Placement: i}}
			worthOf := func(b int) float64 { return worth(owner, jobs, place.Spot{GPU: k, Placement: b}) }
			for b := range busyInTheWay(g, i, worthOf).Indices() {
				j, known := owner[place.Spot{GPU: k, Placement: b}]
				if !known || !jobs[j].Requeue {
					o.lost = math.Inf(1)
					break
				}
				o.lost = max(o.lost, s.Now-jobs[j].Start)
				o.stop = append(o.stop, j)
			}
			slices.Sort(o.stop)
			o.stop = slices.Compact(o.stop)
			if !math.IsInf(o.lost, 1) {
				all = append(all, o)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b option) int { return cmp.Compare(a.lost, b.lost) })
	return all, until
}

// worth ranks the instances in the way. The longer a job has run, the more valuable its instance is. An instance whose
// job must not be stopped has the highest value.
func worth(owner map[place.Spot]int, jobs []Running, at place.Spot) float64 {
	if j, known := owner[at]; known && jobs[j].Requeue {
		return -jobs[j].Start
	}
	return math.Inf(1)
}

// candidates returns all placements of a profile that overlap no blocked unit.
func candidates(g place.GPU, profile string) mig.Layout {
	if g.Model == nil {
		return 0
	}
	p, ok := g.Model.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return g.Model.Open(0, g.Blocked) & g.Model.OfProfile(p)
}

// roomFrom returns the time at which placement i becomes free if no job is stopped, according to the expected ends of
// the instances in the way.
func roomFrom(g place.GPU, i int, now float64) float64 {
	end := func(b int) float64 {
		if g.Ends == nil {
			return math.Inf(1)
		}
		return max(now, g.Ends[b])
	}
	from, stay := now, g.Busy
	for !g.Model.Fits(stay, i) {
		from = math.Inf(1)
		for b := range stay.Indices() {
			from = min(from, end(b))
		}
		if math.IsInf(from, 1) {
			break
		}
		for b := range stay.Indices() {
			if end(b) <= from {
				stay = stay.Without(b)
			}
		}
	}
	return from
}

// busyInTheWay returns the busy instances that must be destroyed for placement i: the instances that overlap i, and the
// least valuable instances among those that hold other resources that i needs (instance limit, media engines).
func busyInTheWay(g place.GPU, i int, worth func(b int) float64) mig.Layout {
	busy := slices.Collect(g.Busy.Indices())
	slices.SortStableFunc(busy, func(a, b int) int { return cmp.Compare(worth(b), worth(a)) })
	stay := mig.Layout(0)
	for _, b := range busy {
		if b != i && g.Model.Fits(stay.With(b), i) {
			stay = stay.With(b)
		}
	}
	return g.Busy &^ stay
}

// evict returns the plan that stops jobs and gives a spot to another job. Instances of the stopped jobs are destroyed
// if they are in the way. Otherwise they remain as idle instances.
func evict(p *place.Pool, at place.Spot, stop []int, jobs []Running, job int) Plan {
	g := p.GPU(at.GPU)
	for _, j := range stop {
		for _, h := range jobs[j].Holds {
			if h.GPU == at.GPU {
				g.Busy, g.Idle = g.Busy.Without(h.Placement), g.Idle.With(h.Placement)
			}
		}
	}
	gone := g.InTheWay(at.Placement)
	var plan Plan
	for _, j := range stop {
		for _, h := range jobs[j].Holds {
			do := Leave
			if h.GPU == at.GPU && gone.Has(h.Placement) {
				do, g.Idle = Destroy, g.Idle.Without(h.Placement)
			}
			plan = append(plan, Step{do, h, p.GPU(h.GPU).Model, j})
		}
	}
	return serve(plan, g, at, job)
}

// inTime reports whether all stopped jobs would meet their deadlines. The jobs start again one after another, each on
// the first spot that becomes free, but not before the time Fixed has passed. No two jobs use the same spot at the same
// time.
func (c LastResort) inTime(
	s *place.Situation,
	plan Plan,
	r place.Request,
	at place.Spot,
	stop []int,
	jobs []Running,
) bool {
	after, err := plan.Apply(s.Pool)
	if err != nil {
		return false
	}
	ready := s.Now + c.Fixed
	slots := slotsOf(after)
	slots.take(at, ready+r.Duration)
	for _, j := range stop {
		var chosen []place.Spot
		start := ready
		for _, h := range jobs[j].Holds {
			b := s.Pool.GPU(h.GPU).Model
			spot, free := slots.soonest(b.ProfileOf(h.Placement), chosen)
			if start = max(start, free); math.IsInf(start, 1) {
				break // the time is unknown, so no deadline can be met
			}
			chosen = append(chosen, spot)
		}
		end := start + jobs[j].Duration
		if end > jobs[j].Deadline {
			return false
		}
		for _, spot := range chosen {
			slots.take(spot, end)
		}
	}
	return true
}

// slots contains, for every spot of a pool, the time at which all instances that overlap it will have ended, in
// seconds.
type slots struct {
	pool *place.Pool
	free [][]float64
}

func slotsOf(p *place.Pool) slots {
	s := slots{p, make([][]float64, p.Len())}
	for k := range s.free {
		g := p.GPU(k)
		if g.Model == nil {
			continue
		}
		s.free[k] = make([]float64, len(g.Model.Placements))
		for i := range s.free[k] {
			s.free[k][i] = p.FreeAt(k, i)
		}
	}
	return s
}

func (s slots) take(at place.Spot, until float64) {
	for i := range s.pool.GPU(at.GPU).Model.Conflicts(at.Placement).Indices() {
		s.free[at.GPU][i] = max(s.free[at.GPU][i], until)
	}
}

// soonest returns the spot of a profile that becomes free first and does not overlap the chosen spots. The time is +Inf
// if there is no such spot.
func (s slots) soonest(profile string, chosen []place.Spot) (at place.Spot, free float64) {
	free = math.Inf(1)
	for k := range s.free {
		g := s.pool.GPU(k)
		for i := range candidates(g, profile).Indices() {
			taken := slices.ContainsFunc(
				chosen,
				func(c place.Spot) bool { return c.GPU == k && g.Model.Conflicts(c.Placement).Has(i) },
			)
			if !taken && s.free[k][i] < free {
				at, free = place.Spot{GPU: k, Placement: i}, s.free[k][i]
			}
		}
	}
	return at, free
}
