package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// Running is a job that holds instances.
type Running struct {
	Holds    []Spot
	Start    float64 // seconds, on the scale of Situation.Now
	Duration float64 // seconds that it takes from its beginning; +Inf: unknown
	Deadline float64 // seconds, when it must have ended; +Inf: none
	// Requeue: it may be stopped and started from its beginning. A caller that lets no job be stopped twice needs no
	// other guard against two jobs that stop each other in turn.
	Requeue bool
}

// Reconfigure is the last of the means (DynaP's reconfiguration-last): a request that fits nowhere waits, or running
// jobs are stopped to make room for it. Stopping pays when
//
//	C_r - C_w <= Beta
//
// C_r is Fixed plus the longest time that a job which would be stopped has run already, and is lost; C_w is how long
// the request waits otherwise: until what is in its way has ended, where that is soonest. (Over several GPUs it must be
// the soonest of all, not that of the candidate: nothing is gained by stopping jobs on one GPU when another has room in
// a minute.)
//
// Only jobs that may be requeued, and would still meet their deadline if they started again when there is room for
// them, are stopped. A job is not stopped for another of its own profile in its own place: that would be preemption,
// and the GPU the same.
type Reconfigure struct {
	// seconds: to stop jobs, to destroy, to create, and before a requeued job may start (22.05: about 120)
	Fixed float64
	Beta  float64 // seconds
}

// Plan answers how to make room for the request now, for the job with this index (its steps bear it), or, if there is
// no plan that pays, when there is room anyway: +Inf when nobody knows, now when it fits as it is. Cheapest first; ties
// go to the lowest GPU, then to the lowest start.
func (c Reconfigure) Plan(s *Situation, r Request, job int, jobs []Running) (plan Plan, until float64) {
	until = math.Inf(1)
	owner := map[Spot]int{}
	for j, run := range jobs {
		for _, at := range run.Holds {
			owner[at] = j
		}
	}
	type option struct {
		Spot
		stop []int
		lost float64
	}
	var options []option
	for k := range s.Pool.Len() {
		g := s.Pool.GPU(k)
		for i := range g.candidates(r.Profile).Indices() {
			at := Spot{k, i}
			until = min(until, g.roomFrom(i, s.Now))
			if g.Layout.Has(i) {
				continue
			}
			o := option{Spot: at}
			for b := range g.busyInTheWay(i, func(b int) float64 { return c.worth(owner, jobs, Spot{k, b}) }).Indices() {
				j, known := owner[Spot{k, b}]
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
				options = append(options, o)
			}
		}
	}
	if until <= s.Now {
		return nil, s.Now
	}
	// The order of the indices, which breaks ties, is that of the GPUs, then of the starts.
	slices.SortStableFunc(options, func(a, b option) int { return cmp.Compare(a.lost, b.lost) })
	for _, o := range options {
		if c.Fixed+o.lost-(until-s.Now) > c.Beta {
			break
		}
		plan := s.Pool.evict(o.Spot, o.stop, jobs, job)
		if c.inTime(s, plan, r, o.Spot, o.stop, jobs) {
			return plan, until
		}
	}
	return nil, until
}

// worth orders what is in the way by how much one would rather leave it there: by the time it has run, and above all
// what must not be stopped.
func (c Reconfigure) worth(owner map[Spot]int, jobs []Running, at Spot) float64 {
	if j, known := owner[at]; known && jobs[j].Requeue {
		return -jobs[j].Start
	}
	return math.Inf(1)
}

// candidates are all placements of a profile that no blocked unit rules out.
func (g GPU) candidates(profile string) mig.Layout {
	if g.Model == nil {
		return 0
	}
	p, ok := g.Model.ProfileIndex(profile)
	if !ok {
		return 0
	}
	return g.Model.Open(0, g.Blocked) & g.Model.OfProfile(p)
}

// roomFrom is when placement i can be had if nothing is stopped: what ends first goes first, until it fits.
func (g GPU) roomFrom(i int, now float64) float64 {
	end := func(b int) float64 {
		if g.Ends == nil {
			return math.Inf(1)
		}
		return max(now, g.Ends[b])
	}
	from, stay := now, g.Layout
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

// busyInTheWay are the busy instances that have to go for placement i: those that overlap it, and of those that hold
// what it needs besides units (instance limit, media engines) the least worth.
func (g GPU) busyInTheWay(i int, worth func(b int) float64) mig.Layout {
	busy := slices.Collect(g.Layout.Indices())
	slices.SortStableFunc(busy, func(a, b int) int { return cmp.Compare(worth(b), worth(a)) })
	stay := mig.Layout(0)
	for _, b := range busy {
		if b != i && g.Model.Fits(stay.With(b), i) {
			stay = stay.With(b)
		}
	}
	return g.Layout &^ stay
}

// evict stops jobs and gives a spot to another: what they held goes if it is in the way, and stays behind idle if it is
// not.
func (p *Pool) evict(at Spot, stop []int, jobs []Running, job int) Plan {
	g := p.GPU(at.GPU)
	for _, j := range stop {
		for _, h := range jobs[j].Holds {
			if h.GPU == at.GPU {
				g.Layout, g.Idle = g.Layout.Without(h.Placement), g.Idle.With(h.Placement)
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
	return g.serve(plan, at, job)
}

// inTime reports whether all stopped jobs would meet their deadlines: each in turn starts again where there is room for
// it first, but not before the fixed time is over, and each slot takes one after the other.
func (c Reconfigure) inTime(s *Situation, plan Plan, r Request, at Spot, stop []int, jobs []Running) bool {
	after, err := plan.Apply(s.Pool)
	if err != nil {
		return false
	}
	ready := s.Now + c.Fixed
	slots := after.slots()
	slots.take(at, ready+r.Duration)
	for _, j := range stop {
		var chosen []Spot
		start := ready
		for _, h := range jobs[j].Holds {
			b := s.Pool.GPU(h.GPU).Model
			spot, free := slots.soonest(b.ProfileOf(h.Placement), chosen)
			if start = max(start, free); math.IsInf(start, 1) {
				break // nobody knows when: too late for any deadline
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

// slots is, for every spot of a pool, when everything that overlaps it will have ended.
type slots struct {
	pool *Pool
	free [][]float64
}

func (p *Pool) slots() slots {
	s := slots{p, make([][]float64, p.Len())}
	for k := range p.gpus {
		if g := p.GPU(k); g.Model != nil {
			s.free[k] = g.frees(nil)
		}
	}
	return s
}

func (s slots) take(at Spot, until float64) {
	for i := range s.pool.GPU(at.GPU).Model.Conflicts(at.Placement).Indices() {
		s.free[at.GPU][i] = max(s.free[at.GPU][i], until)
	}
}

// soonest is the spot of a profile that is free first, beside those already chosen; +Inf when there is none.
func (s slots) soonest(profile string, chosen []Spot) (at Spot, free float64) {
	free = math.Inf(1)
	for k := range s.free {
		g := s.pool.GPU(k)
		for i := range g.candidates(profile).Indices() {
			taken := slices.ContainsFunc(
				chosen,
				func(c Spot) bool { return c.GPU == k && g.Model.Conflicts(c.Placement).Has(i) },
			)
			if !taken && s.free[k][i] < free {
				at, free = Spot{k, i}, s.free[k][i]
			}
		}
	}
	return at, free
}
