package sim

// Observer is told what happens, for drawings of it. Times are in seconds.
type Observer interface {
	// Passed is a time in which nothing changed: so many units held jobs, so many jobs waited, and the GPUs were so
	// fragmented on average (0 to 1).
	Passed(from, to float64, busy, waiting int, frag float64)
	// Ran is a slice of a job, on which GPU and which of its units. The reference that moves everything tells of none.
	Ran(s Span)
	// Waited is a job that has started, and will end well, and how long it waited in all.
	Waited(job string, wait float64)
}

// Span is a slice while a job holds it.
type Span struct {
	Job, Profile     string
	GPU, Start, Size int // units
	From, To         float64
}

// tell the observer of a job's slices, which it has just got.
func (s *simulation) tell(j *job) {
	if s.Observer == nil {
		return
	}
	if !j.dead {
		s.Observer.Waited(j.ID, j.waited)
	}
	span := Span{Job: j.ID, Profile: j.asksFor, From: j.started, To: j.ends}
	for _, at := range j.spots {
		pl := s.GPUs[at.GPU].Placements[at.Placement]
		span.GPU, span.Start, span.Size = at.GPU, pl.Start, pl.Size
		s.Observer.Ran(span)
	}
	if f, ok := s.room.(*fixed); ok {
		for _, i := range j.numbers {
			sl := &f.slices[i]
			span.GPU, span.Start, span.Size = sl.gpu, sl.start, sl.size
			s.Observer.Ran(span)
		}
	}
}
