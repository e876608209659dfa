package reconfigure

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Running is a job that holds instances.
type Running struct {
	Holds    []place.Spot
	Start    float64 // seconds, on the time scale of Situation.Now
	Duration float64 // the total run time in seconds, or +Inf if unknown
	Deadline float64 // the deadline in seconds, or +Inf if the job has no deadline
	// Requeue is true if the job may be stopped and restarted from the beginning. The caller should set it at most once
	// for each job, so that two jobs cannot stop each other repeatedly.
	Requeue bool
}

// LastResort decides whether to wait or to stop jobs when a request does not fit anywhere (DynaP's
// reconfiguration-last). A plan stops jobs if
//
//	C_r - C_w <= Beta
//
// C_r is Fixed plus the longest run time that is lost by any stopped job. C_w is the time for which the request would
// otherwise have to wait for the jobs in the way to end. It is the minimum over all GPUs, because stopping jobs on one
// GPU has no benefit if another GPU becomes free in a minute.
//
// A plan stops a job only if the job may be requeued and would still meet its deadline after restarting on the next
// free spot. It does not stop a job to make room for another job that would use the same placement, because that would
// be preemption without a change in the GPU's layout.
type LastResort struct {
	// Fixed is the total time, in seconds, needed to stop jobs, to destroy and create instances, and to wait until a
	// requeued job is eligible to start. With Slurm 22.05, it is about 120.
	Fixed float64
	Beta  float64 // in seconds
	// Move restricts the plans to moves: each stopped job must fit on free units as soon as the request has its spot.
	// C_r is then Fixed plus the total run time that is lost, and plans that stop fewer jobs come first.
	Move bool
}

// Plan returns a plan after which the request fits now. job is the index of the request's job, which appears in the
// plan's steps. until is the time, in seconds, at which the request fits without a plan: +Inf if unknown, and Now if it
// already fits. The plan is nil if no plan is worth its cost. If there are several plans, the cheapest is chosen; if
// several are equally cheap, the one with the lowest GPU and start is chosen.
func (c LastResort) Plan(s *place.Situation, r place.Request, job int, jobs []Running) (plan Plan, until float64) {
	options, until := c.optionsFor(s, r, jobs)
	if until <= s.Now {
		return nil, s.Now
	}
	for _, o := range options {
		if c.Fixed+o.lost-(until-s.Now) > c.Beta {
			continue
		}
		plan := evict(s.Pool, o.Spot, o.stop, jobs, job)
		if c.inTime(s, plan, r, o.Spot, o.stop, jobs) {
			return plan, until
		}
	}
	return nil, until
}

// option is a spot for a request, and the jobs that must be stopped for it.
type option struct {
	place.Spot
	stop []int
	lost float64 // the run time that the stopped jobs lose, in seconds (see lost)
}

// optionsFor returns the spots that a request could use if jobs were stopped, sorted by the lost run time (with Move,
// by the number of stopped jobs, and then by the lost run time), then by GPU, and then by start. until is the time, in
// seconds, at which the request fits without stopping jobs.
func (c LastResort) optionsFor(s *place.Situation, r place.Request, jobs []Running) (all []option, until float64) {
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
			o, stoppable := option{Spot: place.Spot{GPU: k, Placement: i}}, true
			worthOf := func(b int) float64 { return worth(owner, jobs, place.Spot{GPU: k, Placement: b}) }
			for b := range busyInTheWay(g, i, worthOf).Indices() {
				j, known := owner[place.Spot{GPU: k, Placement: b}]
				if stoppable = known && jobs[j].Requeue; !stoppable {
					break
				}
				o.stop = append(o.stop, j)
			}
			if stoppable {
				slices.Sort(o.stop)
				o.stop = slices.Compact(o.stop)
				o.lost = c.lost(o.stop, jobs, s.Now)
				all = append(all, o)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b option) int {
		if c.Move && len(a.stop) != len(b.stop) {
			return cmp.Compare(len(a.stop), len(b.stop))
		}
		return cmp.Compare(a.lost, b.lost)
	})
	return all, until
}

// lost returns the run time that the stopped jobs lose, in seconds: the longest of their run times or, with Move, the
// total.
func (c LastResort) lost(stop []int, jobs []Running, now float64) (seconds float64) {
	for _, j := range stop {
		if run := now - jobs[j].Start; c.Move {
			seconds += run
		} else {
			seconds = max(seconds, run)
		}
	}
	return seconds
}

// worth returns the value of an instance that is in the way. The value increases with the run time of the instance's
// job and is highest if the job must not be stopped.
func worth(owner map[place.Spot]int, jobs []Running, at place.Spot) float64 {
	if j, known := owner[at]; known && jobs[j].Requeue {
		return -jobs[j].Start
	}
	return math.Inf(1)
}

// candidates returns all placements of a profile that do not overlap blocked units.
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

// roomFrom returns the time at which placement i will become free if no job is stopped, according to the expected ends
// of the instances in the way.
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

// busyInTheWay returns the busy instances that must be destroyed to make room for placement i: all instances that
// overlap i and, if i needs other resources that instances hold (instance limit, media engines), the least valuable of
// the instances that hold these resources.
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

// evict returns the plan that stops jobs and assigns a spot to another job. The plan destroys those instances of the
// stopped jobs that are in the way. Their other instances remain as idle instances.
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

// inTime reports whether all stopped jobs would meet their deadlines and, with Move, fit on free units. It assumes that
// each job restarts on the first spot that becomes free, but not before Fixed has passed, and that no two jobs use the
// same spot at the same time.
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
	if c.Move && !fitTogether(after, stop, jobs) {
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
			if c.Move && free > s.Now {
				return false
			}
			if start = max(start, free); math.IsInf(start, 1) {
				break // unknown, so the job might miss any deadline
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

// fitTogether reports whether the stopped jobs fit on the free units of the pool at the same time. Unlike slots, it
// takes into account resources other than units, such as media engines.
func fitTogether(after *place.Pool, stop []int, jobs []Running) bool {
	var profiles []string
	for _, j := range stop {
		for _, h := range jobs[j].Holds {
			profiles = append(profiles, after.GPU(h.GPU).Model.ProfileOf(h.Placement))
		}
	}
	_, fit := place.Pack(gpusOf(after), profiles)
	return fit
}

// slots holds, for every spot of a pool, the time, in seconds, at which the jobs on all instances that overlap it will
// have ended.
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

// soonest returns the spot for a profile that becomes free first, among the spots that do not overlap the chosen spots.
// free is +Inf if no spot becomes free.
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
