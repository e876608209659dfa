package sim

// Result holds the results of a simulation. Times are in seconds. A unit-second is one unit of a GPU for one second.
type Result struct {
	Submitted, Started, Refused int // numbers of jobs
	Requeued                    int // the number of times that jobs ran out of memory
	// Waits is the distribution of the waits of the started jobs. The wait of a requeued job is the total time during
	// which it was not running.
	Waits Waits
	// Prompt and Found are set only in simulations with offers. Prompt is the number of jobs that could start at
	// submission. Found is the number of these jobs whose slices were already on offer.
	Prompt, Found int
	Turnaround    float64 // the total time from submission to end of the started jobs

	// Met and Missed are the numbers of jobs that ended before and after their deadlines, respectively. Missed includes
	// the Removed jobs, which slurmctld removed before they started. Others is the distribution of the waits of the
	// jobs without deadlines.
	Met, Missed, Removed int
	Others               Waits

	UnitSecondsAsked, UnitSecondsGot float64
	Profiles                         map[string]*ProfileResult

	Makespan    float64 // from the first submission to the last end
	Utilisation float64 // the mean fraction of units that were busy over the makespan
	Lost        float64 // the fraction of busy unit-seconds lost because jobs ran out of memory or were moved
	Moved       int     // the number of times that a running job was moved or stopped
	Active      float64 // the mean number of GPUs with at least one running job over the makespan; 0 for counted GPUs
	Frag        float64 // mean of FragAware's fragmentation measure over the GPUs and the makespan

	Created, Destroyed, Reused int // numbers of instances; full GPUs are neither created nor destroyed
	Switched                   int // the number of MIG mode switches

	first, last, busy, frag, lost, active float64
	units                                 int
}

// ProfileResult holds the counts for the jobs that need a given profile.
type ProfileResult struct {
	Submitted, Started int
}

// of returns the counts for the profile that a job needs.
func (r *Result) of(j *Job) *ProfileResult {
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

func (r *Result) submitted(j *Job) {
	if r.Submitted == 0 {
		r.first = j.Submit
	}
	r.Submitted++
	r.of(j).Submitted++
	r.UnitSecondsAsked += j.unitSeconds
}

func (r *Result) started(j *Job) {
	if j.outOfMemory {
		r.Requeued++
		r.lost += float64(j.units) * j.runs
		return
	}
	r.Started++
	r.Waits.Add(j.waited)
	r.Turnaround += j.ends - j.Submit
	r.countDeadline(j)
	r.of(j).Started++
	r.UnitSecondsGot += j.unitSeconds
}

func (r *Result) ended(j *Job) { r.last = max(r.last, j.ends) }

// pass adds an interval of d seconds during which nothing changed.
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
		switch on := s.room.(type) {
		case *cut:
			r.active += d * float64(on.active)
		case *fixed:
			r.active += d * float64(on.active)
		}
		r.frag += d * s.room.fragmentation() / float64(len(s.GPUs))
	}
}

func (r *Result) close() {
	r.Makespan = r.last - r.first
	if r.Makespan > 0 {
		r.Utilisation = r.busy / (r.Makespan * float64(r.units))
		r.Frag = r.frag / r.Makespan
		r.Active = r.active / r.Makespan
		r.Lost = r.lost / max(r.busy, 1)
	}
}

// MeanTurnaround returns the mean time from submission to end of the started jobs, in seconds, or 0 if no job started.
func (r *Result) MeanTurnaround() float64 { return r.Turnaround / float64(max(r.Started, 1)) }

// Worst returns the fraction of jobs that started, for the profile with the lowest such fraction, or 1 if no job was
// submitted.
func (r *Result) Worst() float64 {
	worst := 1.0
	for _, p := range r.Profiles {
		worst = min(worst, float64(p.Started)/float64(p.Submitted))
	}
	return worst
}

// Accepted returns the accepted fraction of the requested unit-seconds.
func (r *Result) Accepted() float64 {
	if r.UnitSecondsAsked == 0 {
		return 1
	}
	return r.UnitSecondsGot / r.UnitSecondsAsked
}
