package sim

// Observer receives the events of a simulation. Times are in seconds.
type Observer interface {
	// Passed reports an interval without changes. busy is the number of busy units, waiting is the number of waiting
	// jobs, and frag is the mean fragmentation of the GPUs (0 to 1).
	Passed(from, to float64, busy, waiting int, frag float64)
	// Ran reports the use of a slice by a job. It is not called in simulations with the reference that moves all jobs.
	Ran(s Span)
	// Waited reports the total wait of a job that has started and will not run out of memory.
	Waited(job string, wait float64)
}

// Span is the interval in which a job holds a slice. Profile is the slice's profile, which may be larger than the
// requested profile.
type Span struct {
	Job, Profile     string
	GPU, Start, Size int // units
	From, To         float64
}

// segment reports the slices of a job that is being moved or stopped, or that is ending.
func (s *simulation) segment(j *Job) {
	if j.from < s.now {
		s.observe(j, j.from, s.now)
	}
}

// observe reports the slices that a job holds between two times.
func (s *simulation) observe(j *Job, from, to float64) {
	if s.Observer == nil {
		return
	}
	span := Span{Job: j.ID, Profile: j.asksFor, From: from, To: to}
	for _, at := range j.spots {
		pl := s.GPUs[at.GPU].Placements[at.Placement]
		span.GPU, span.Start, span.Size = at.GPU, pl.Start, pl.Size
		span.Profile = s.profile(at).Name
		s.Observer.Ran(span)
	}
	if f, ok := s.room.(*fixed); ok {
		for _, i := range j.numbers {
			sl := &f.slices[i]
			of := f.classes[sl.class].profile
			span.GPU, span.Start, span.Size, span.Profile = sl.gpu, sl.start, of.Size, of.Name
			s.Observer.Ran(span)
		}
	}
}
