package sim

// Result is what came out of a simulation. Times are in seconds; unit-seconds count the units of a profile times the
// time.
type Result struct {
	Submitted, Started, Refused int // jobs
	Requeued                    int // how often a job ran out of memory
	// of those that started; for one that was requeued, all the time in which it did not run
	Waits Waits
	// with offers: jobs that could start when they were submitted; of these, that found what they want on offer
	Prompt, Found int
	Turnaround    float64 // from submission to end, the sum of those that started

	UnitSecondsAsked, UnitSecondsGot float64
	Profiles                         map[string]*ProfileResult

	Makespan    float64 // from the first submission to the last end
	Utilisation float64 // share of all units that held a job, over the makespan
	Lost        float64 // the share of what was busy that jobs had which ran out of memory
	Held        int     // how often a job was held though there was room
	Frag        float64 // FragAware's measure, mean over the GPUs and the makespan

	Created, Destroyed, Reused int // instances

	first, last, busy, frag, lost float64
	units                         int
}

// ProfileResult is the part of one profile.
type ProfileResult struct {
	Submitted, Started int
}

func (r *Result) of(j *job) *ProfileResult {
	p := r.Profiles[j.needs]
	if p == nil {
		if r.Profiles == nil {
			r.Profiles = map[string]*ProfileResult{}
		}
		p = &ProfileResult{}
		r.Profiles[j.needs] = p
	}
	return p
}

func (r *Result) submitted(j *job) {
	if r.Submitted == 0 {
		r.first = j.Submit
	}
	r.Submitted++
	r.of(j).Submitted++
	r.UnitSecondsAsked += j.work
}

func (r *Result) started(j *job) {
	if j.dead {
		r.Requeued++
		r.lost += float64(j.units) * j.runs
		return
	}
	r.Started++
	r.Waits.Add(j.waited)
	r.Turnaround += j.ends - j.Submit
	r.of(j).Started++
	r.UnitSecondsGot += j.work
}

func (r *Result) ended(j *job) { r.last = max(r.last, j.ends) }

// pass accounts for a time in which nothing happens.
func (r *Result) pass(s *simulation, d float64) {
	if d > 0 {
		if s.Observer != nil {
			s.Observer.Passed(
				s.now,
				s.now+d,
				r.units-s.room.idle(),
				s.queue.len(),
				s.room.fragmentation()/float64(len(s.GPUs)),
			)
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
		r.Lost = r.lost / max(r.busy, 1)
	}
}

// MeanTurnaround is from submission to end, of those that started; 0 when none did.
func (r *Result) MeanTurnaround() float64 { return r.Turnaround / float64(max(r.Started, 1)) }

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
