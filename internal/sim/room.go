package sim

import "caelum/internal/place"

// room is where jobs run.
type room interface {
	// place starts the k-th of the queue, if there is room that r leaves (nil: no reservation). If not, and it is the head, it
	// answers with where and when it could start.
	place(k int, r *reservation) (bool, *reservation)
	// leave frees what a job that has ended holds.
	leave(j *job)
	// idle is how many units hold no job, and fragmentation how fragmented the GPUs are, summed over them.
	idle() int
	fragmentation() float64
}

// reservation is what is kept for the head of the queue.
type reservation struct {
	at      float64      // when it is expected to start
	spots   []place.Spot // with a policy: what it gets then
	numbers []int        // with fixed layouts: the slices that it gets
	counts  []int        // where jobs are moved: how many of each profile stand then, its own included
}

func newRoom(s *simulation) room {
	switch {
	case s.Policy != nil:
		return newCut(s)
	case s.Static != nil:
		return newFixed(s)
	default:
		return newMoved(s)
	}
}
