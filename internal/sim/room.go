package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/offer"
	"caelum/internal/place"
)

// room is where jobs run.
type room interface {
	// place starts the k-th of the queue, if there is room that r leaves (nil: no reservation). If not, and it is the
	// head, it answers with where and when it could start.
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

// onCut is it as package offer has it.
func (r *reservation) onCut() *offer.Reservation {
	if r == nil {
		return nil
	}
	return &offer.Reservation{At: r.at, Spots: r.spots}
}

// firstOf reserves for a job the nodes on which it can start first.
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
