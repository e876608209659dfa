package offer

import (
	"fmt"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// Plan is the result of Make.
type Plan struct {
	// Offers holds one set of placements per GPU.
	Offers []mig.Layout
	// AdvertisedAs maps a placement to the requested profile name if the placement is not offered under the name of its
	// own profile.
	AdvertisedAs map[Spot]string
	// Spots holds each job's spots, in queue order, or nil for a job that has to wait.
	Spots [][]Spot
	// Reserved is the reservation for the first job that has to wait, or nil if there is no reservation.
	Reserved *Reservation
	// Kept describes the spots that are kept for a job that lacks resources other than slices, or is nil if there are
	// no such spots. Until Kept.At, these spots are lent to other jobs.
	Kept *Reservation
	// OverQuota is true for each job that has no spots because too many GPUs would be full. It is nil if there are no
	// such jobs.
	OverQuota []bool
	// Price is the price of a second of a whole GPU, in seconds of delay for the jobs that have to wait (see size.go).
	Price float64
}

// Name returns the profile name under which a placement is offered. b is the GPU's model.
func (p Plan) Name(b *mig.Model, at Spot) string {
	if name, ok := p.AdvertisedAs[at]; ok {
		return name
	}
	return b.ProfileOf(at.Placement)
}

// Counts returns the number of placements that are offered under each profile name.
func (p Plan) Counts(gpus []place.GPU) map[string]int {
	n := map[string]int{}
	for k, l := range p.Offers {
		for i := range l.Indices() {
			n[p.Name(gpus[k].Model, Spot{GPU: k, Placement: i})]++
		}
	}
	return n
}

// Check returns an error unless all offers can be carved at the same time, alongside the busy placements.
func (p Plan) Check(gpus []place.GPU) error {
	if len(p.Offers) != len(gpus) {
		return fmt.Errorf("the plan contains offers for %d GPUs, but the node has %d GPUs", len(p.Offers), len(gpus))
	}
	for i, g := range gpus {
		switch offers := p.Offers[i]; {
		case offers == 0:
		case g.Model == nil:
			return fmt.Errorf("GPU %d: the plan contains offers, but the GPU is not managed", i)
		case offers&g.Busy != 0:
			return fmt.Errorf("GPU %d: placement %s is both busy and on offer", i, g.Model.Draw(offers&g.Busy))
		case offers&^g.Offerable != 0:
			return fmt.Errorf("GPU %d: placement %s is on offer, but is not among the placements that may be offered",
				i, g.Model.Draw(offers&^g.Offerable))
		case !g.Model.Legal(g.Busy | offers):
			return fmt.Errorf(
				"GPU %d: busy placements %s and offers %s do not form a legal layout",
				i,
				g.Model.List(g.Busy),
				g.Model.List(offers),
			)
		case g.Model.Occupied(offers)&g.Blocked != 0:
			return fmt.Errorf("GPU %d: offers %s overlap blocked units", i, g.Model.List(offers))
		}
	}
	return nil
}

// Pack finds placements for the demands of all jobs, alongside the busy placements. Agents call it after a restart if
// the plan that assigned jobs their slices has been lost. It returns false only if there are no placements that meet
// all demands ([place.Pack]).
func Pack(gpus []place.GPU, demands []*Job) (map[uint32][]Spot, bool) {
	largest := NewCluster(nil, gpus)
	var jobs []uint32
	var profiles []string
	for _, d := range demands {
		for _, w := range largest.bySize(d.Wants) {
			for range w.Count {
				jobs, profiles = append(jobs, d.ID), append(profiles, w.on(gpus))
			}
		}
	}
	at, ok := place.Pack(gpus, profiles)
	if !ok {
		return nil, false
	}
	spots := map[uint32][]Spot{}
	for k, job := range jobs {
		spots[job] = append(spots[job], at[k])
	}
	return spots, true
}

// on returns the required profile or, if no GPU has it, the first alternative that some GPU does have.
func (w Want) on(gpus []place.GPU) string {
	for _, name := range w.profiles() {
		if slices.ContainsFunc(gpus, func(g place.GPU) bool {
			if g.Model == nil {
				return false
			}
			_, ok := g.Model.ProfileIndex(name)
			return ok
		}) {
			return name
		}
	}
	return w.Needed()
}
