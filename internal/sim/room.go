package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/offer"
	"caelum/internal/place"
)

// room is the set of GPUs on which jobs run.
type room interface {
	// place starts the k-th job of the queue if there is room beside the reservation r (nil: none). Otherwise, for the
	// head of an EASY queue, it returns a reservation.
	place(k int, r *reservation) (bool, *reservation)
	// leave frees the slices of a job that has ended.
	leave(j *job)
	// idle returns the number of units without a job. fragmentation returns the sum of the fragmentation of the GPUs.
	idle() int
	fragmentation() float64
}

// reservation is the planned start of the head of the queue.
type reservation struct {
	at      float64      // time in seconds
	spots   []place.Spot // the job's slices, with a policy
	numbers []int        // the job's slices, with fixed layouts
	counts  []int        // the slices of each profile at that time, including those of the job (in the reference)
}

// onCut converts the reservation for package offer.
func (r *reservation) onCut() *offer.Reservation {
	if r == nil {
		return nil
	}
	return &offer.Reservation{At: r.at, Spots: r.spots}
}

// firstOf returns a reservation for a job on the nodes on which the job can start first.
func firstOf(nodes []*reservation, j *job) *reservation {
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
	case s.Offers:
		s.offers = newOffers(s)
		return s.offers.cut
	case s.Policy != nil:
		return newCut(s)
	case s.Static != nil:
		return newFixed(s)
	default:
		return newMoved(s)
	}
}
