package sim

// Result holds the figures of a simulation. Times are in seconds. Unit-seconds are the units of a profile times a
// duration.
type Result struct {
	Submitted, Started, Refused int // jobs
	Requeued                    int // number of times that jobs ran out of memory
	// Waits contains the waits of the jobs that started. The wait of a requeued job is the total time during which the
	// job did not run.
	Waits Waits
	// With offers, Prompt is the number of jobs that could start when they were submitted.
	// Found is the number of those whose slices were already offered.
	Prompt, Found int
	Turnaround    float64 // sum over the jobs that started, from submission to end

	UnitSecondsAsked, UnitSecondsGot float64
	Profiles                         map[string]*ProfileResult

	Makespan    float64 // from the first submission to the last end
	Utilisation float64 // the busy share of all units, over the makespan
	Lost        float64 // share of the busy unit-seconds in runs that ended out of memory
	Held        int     // number of times that the head of the queue was held although there was room
	Frag        float64 // the fragmentation measure of FragAware, as the mean over the GPUs and the makespan

	Created, Destroyed, Reused int // instances

	first, last, busy, frag, lost float64
	units                         int
}

// ProfileResult counts the jobs of one profile.
type ProfileResult struct {
	Submitted, Started int
}

// of returns the counts of the profile that a job needs.
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
	r.UnitSecondsAsked += j.unitSeconds
}

func (r *Result) started(j *job) {
	if j.outOfMemory {
		r.Requeued++
		r.lost += float64(j.units) * j.runs
		return
	}
	r.Started++
	r.Waits.Add(j.waited)
	r.Turnaround += j.ends - j.Submit
	r.of(j).Started++
	r.UnitSecondsGot += j.unitSeconds
}

func (r *Result) ended(j *job) { r.last = max(r.last, j.ends) }

// pass accounts for an interval of d seconds without changes.
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

// MeanTurnaround returns the mean time from submission to end of the jobs that started, in seconds, or 0 if no job
// started.
func (r *Result) MeanTurnaround() float64 { return r.Turnaround / float64(max(r.Started, 1)) }

// Worst returns the share of started jobs for the profile for which this share is smallest, or 1 if there were no jobs.
func (r *Result) Worst() float64 {
	worst := 1.0
	for _, p := range r.Profiles {
		worst = min(worst, float64(p.Started)/float64(p.Submitted))
	}
	return worst
}

// Accepted returns the accepted share of the requested unit-seconds.
func (r *Result) Accepted() float64 {
	if r.UnitSecondsAsked == 0 {
		return 1
	}
	return r.UnitSecondsGot / r.UnitSecondsAsked
}
