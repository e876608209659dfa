package sim

import (
	"math"
	"slices"
)

// Result is what came out of a simulation. Times are in seconds; unit-seconds count the units of a profile times the time.
type Result struct {
	Submitted, Started, Refused int
	Waits                       []float64 // of those that started, in the order of their starts
	Longest                     float64   // wait
	Turnaround                  float64   // from submission to end, the sum of those that started

	UnitSecondsAsked, UnitSecondsGot float64
	Profiles                         map[string]*ProfileResult

	Makespan    float64 // from the first submission to the last end
	Utilisation float64 // share of all units that held a job, over the makespan
	Held        int     // how often a job was held though there was room
	Frag        float64 // FragAware's measure, mean over the GPUs and the makespan

	Created, Destroyed, Reused int // instances

	first, last, busy, frag float64
	units                   int
}

// ProfileResult is the part of one profile.
type ProfileResult struct {
	Submitted, Started int
}

func (r *Result) of(j *job) *ProfileResult {
	p := r.Profiles[j.Profile]
	if p == nil {
		if r.Profiles == nil {
			r.Profiles = map[string]*ProfileResult{}
		}
		p = &ProfileResult{}
		r.Profiles[j.Profile] = p
	}
	return p
}

func (r *Result) submitted(j *job) {
	if r.Submitted == 0 {
		r.first = j.Submit
	}
	r.Submitted++
	r.of(j).Submitted++
	r.UnitSecondsAsked += float64(j.size*j.slices()) * j.runs
}

func (r *Result) started(j *job) {
	wait := j.started - j.Submit
	r.Started++
	r.Waits = append(r.Waits, wait)
	r.Longest = max(r.Longest, wait)
	r.Turnaround += wait + j.runs
	r.of(j).Started++
	r.UnitSecondsGot += float64(j.size*j.slices()) * j.Takes(j.Profile)
}

func (r *Result) ended(j *job) { r.last = max(r.last, j.ends) }

// pass accounts for a time in which nothing happens.
func (r *Result) pass(s *simulation, d float64) {
	if d > 0 {
		if s.Observer != nil {
			s.Observer.Passed(s.now, s.now+d, r.units-s.room.idle(), s.queue.len(), s.room.fragmentation()/float64(len(s.GPUs)))
		}
		r.busy += d * float64(r.units-s.room.idle())
		r.frag += d * s.room.fragmentation() / float64(len(s.GPUs))
	}
}

func (r *Result) close() {
	r.Makespan = r.last - r.first
	if r.Makespan > 0 {
		r.Utilisation = r.busy / (r.Makespan * float64(r.units))
		r.Frag = r.frag / r.Makespan
	}
}

// MeanWait of those that started; 0 when none did.
func (r *Result) MeanWait() float64 {
	sum := 0.0
	for _, w := range r.Waits {
		sum += w
	}
	return sum / float64(max(len(r.Waits), 1))
}

// MeanTurnaround is from submission to end, of those that started; 0 when none did.
func (r *Result) MeanTurnaround() float64 { return r.Turnaround / float64(max(r.Started, 1)) }

// WaitsAt are the waits that shares q of those that started did not exceed, 0 < q <= 1; 0 when none started.
func (r *Result) WaitsAt(q ...float64) []float64 {
	waits := make([]float64, len(q))
	if len(r.Waits) == 0 {
		return waits
	}
	sorted := slices.Sorted(slices.Values(r.Waits))
	for k := range q {
		waits[k] = sorted[max(0, int(math.Ceil(q[k]*float64(len(sorted))))-1)]
	}
	return waits
}

// Worst is the share of its jobs that started of the profile that fared worst; 1 when there were no jobs.
func (r *Result) Worst() float64 {
	worst := 1.0
	for _, p := range r.Profiles {
		worst = min(worst, float64(p.Started)/float64(p.Submitted))
	}
	return worst
}

// Accepted is the share of the unit-seconds asked for that were got.
func (r *Result) Accepted() float64 {
	if r.UnitSecondsAsked == 0 {
		return 1
	}
	return r.UnitSecondsGot / r.UnitSecondsAsked
}
