package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// room is the set of GPUs on which jobs run.
type room interface {
	// place starts the k-th job in the queue if it fits and does not delay the reservation r, which may be nil. If the
	// job does not fit and is the head of an EASY queue, place returns a reservation for it.
	place(k int, r *reservation) (bool, *reservation)
	// leave frees the slices of a job that has ended.
	leave(j *Job)
	// idle returns the number of units that no job occupies. fragmentation returns the total fragmentation of the GPUs.
	idle() int
	fragmentation() float64
}

// reservation is the planned start of the job at the head of the queue.
type reservation struct {
	at      float64      // the start in seconds
	spots   []place.Spot // the job's slices, if the room uses a policy
	numbers []int        // the job's slices, if the room uses fixed layouts
}

// onCut converts the reservation to package offer's type.
func (r *reservation) onCut() *offer.Reservation {
	if r == nil {
		return nil
	}
	return &offer.Reservation{At: r.at, Spots: r.spots}
}

// firstOf returns a reservation for the job on the nodes on which it can start earliest.
func firstOf(nodes []*reservation, j *Job) *reservation {
	r := &reservation{at: math.Inf(1)}
	if n := j.offer.Nodes; n <= len(nodes) {
		slices.SortStableFunc(nodes, func(a, b *reservation) int { return cmp.Compare(a.at, b.at) })
		for _, on := range nodes[:n] {
			r.at, r.numbers = on.at, append(r.numbers, on.numbers...)
		}
	}
	return r
}

func newRoom(s *simulation) room {
	switch {
	case s.Offers && s.Policy != nil:
		s.offers = newOffers(s)
		return s.offers.cut
	case s.Policy != nil:
		return newCut(s)
	case s.Static != nil:
		return newFixed(s)
	default:
		return newCounted(s)
	}
}
