package place

import (
	"math"
	"slices"
)

// QLA is a queue look-ahead policy that may hold the head of the queue.
//
// [Lifetime] computes the cost of a placement from the slots that overlap it, but ignores the waiting jobs. QLA takes
// them into account: it selects the most promising placements for the head of the queue, and simulates the subsequent
// events for each of them (a rollout). In a rollout, a simple rule places the jobs behind the head in order, and every
// instance becomes free at its expected time. The sooner the jobs behind the head start in the rollout, the better the
// placement.
//
// Rollouts also show whether the head should start now, which cannot be determined by comparing placements. For
// example, a 1g.5gb that starts now on the last free unit of one half of a GPU may delay a 4g.20gb by an hour, even
// though another unit becomes free in a minute. QLA therefore also considers placements that are still busy. If one of
// them is best, QLA holds the head: it remains first, no other job starts, and QLA decides again at the next event. In
// production, an agent holds a job by not offering its slice.
//
//	candidates   the 8 free placements with the lowest slot cost c, the 8 busy placements with the lowest c + 20 x wait
//	slot cost    c = sum over the slots j that overlap the placement of w_j * max(0, end - max(start, F_j)): as in
//	             Lifetime, but with w = 1.6 x the units for the profile of a whole GPU, which has only one start.
//	             If GPUs may be full, the nodes are slots too (nodeSlots), except in rollouts
//	other jobs   each gets the slot with the lowest 300 x its own wait + c, and does not start before the previous job
//	score        the head's wait + 0.01 x its cost + the waits of the next 24 jobs in the queue
//
// Because a hold leaves a GPU idle, four rules limit holds:
//
//   - The queue must be ordered ([Situation.Ordered]). With backfill, holds have no benefit: at a site where few jobs
//     have to wait (trace.Site, with offers), the ratio of the mean wait with QLA to the mean wait with best-fit is
//     0.97 without holds and 1.15 with holds. On churn, the mean waits with and without holds differ by at most about
//     5%.
//   - The hold must shorten the simulated waits of the jobs behind the head by more than its own duration. The slot
//     cost may favour a hold, but never justifies one. If the queue contains no other jobs, the head therefore starts
//     immediately.
//   - Durations are limited to twice the recent mean duration, as in [Lifetime]. Without this limit, the cost grows
//     with the job's time limit: QLA held a job without a time limit for up to 12.8% of 1e7 s even though a GPU was
//     idle.
//   - The expected duration of a hold must not exceed half the recent mean duration. Wrong expected ends therefore
//     cannot leave a GPU idle for longer.
//
// The recent mean duration is [Situation.MeanDuration], the mean over the jobs whose duration is known. If no duration
// is known, QLA does not hold jobs.
//
// The constants were tuned with churn on 16 A100s and a FIFO queue (load 0.85, seeds 1 to 10), both with exact ends and
// with time limits. Halving or doubling any constant has little effect on the results. In the following table, the
// first two rows compare the current policy with the policy without limits on holds. The other rows are earlier
// variants that did not improve the results. The numbers are mean waits divided by the mean wait with best-fit
// (uniform6 / skew-small / bimodal / four-equal):
//
//	                                         exact ends             limits 1 to 6 x too long, corrected
//	current policy                           .21 / .12 / .29 / .24  .43 / .39 / .48 / .51
//	without limits on holds                  .20 / .11 / .26 / .24  .42 / .36 / .44 / .44
//	rollouts of 32 jobs, 4 sampled arrivals  .19 / .10 / .26 / .23  .41 / .43 / .46 / .47
//	rollouts of 32 jobs, 16 sampled arrivals .21 / .13 / .27 / .24
//	16 rollouts per candidate, with ends and
//	durations drawn from their distribution                         .36 / .32 / .40 / .44   at 16 times the cost
//	expecting ends 30% later, 25% earlier                           .40 / .39 / .48 / .51, .39 / .39 / .43 / .49
//
// The largest improvement to the policy would come from more accurate predictions of the ends.
type QLA struct{}

const (
	qlaAhead      = 24    // the number of jobs behind the head in a rollout
	qlaCandidates = 8     // the maximum number of free candidates, and also of busy candidates
	qlaWhole      = 1.6   // the weight of a unit in a slot of a whole GPU
	qlaHoldPrice  = 20.0  // the price of a second of a hold, for selecting candidates
	qlaCostShare  = 0.01  // the weight of the slot cost in the score
	qlaWaitPrice  = 300.0 // the price of a second of waiting, for selecting a slot for a job behind the head
	// qlaAcquisitionPrice is the price of each step from Reuse to Carve to Reclaim, in unit-seconds.
	qlaAcquisitionPrice = 1.0
	// qlaSwitchPrice is the price of switching the MIG mode, in unit-seconds. It exceeds the prices of all other free
	// candidates, so that QLA switches a MIG mode only if no other candidate is free.
	qlaSwitchPrice = 1e12
	// qlaHold limits the duration of a hold, as a multiple of the recent mean duration. With a multiple of 0.1, waits
	// are longer; without a limit, they are not shorter.
	qlaHold = 0.5
)

// Choose implements [Policy].
func (QLA) Choose(s *Situation, r Request) Choice {
	if !s.Pool.has(r.Profile) {
		return Choice{}
	}
	sim := &s.Pool.sim
	sim.enter(s)
	d := s.counted(r)
	hold := 0.0
	if s.Ordered {
		hold = s.MeanDuration * qlaHold
	}
	sim.setOptions(s.Pool, r, d, hold)
	sim.setBehind(s)
	best, wait, score := &sim.ready[0], math.Inf(1), math.Inf(1) // wait is the total wait behind the head
	for k := range sim.ready {
		o := &sim.ready[k]
		if own := qlaCostShare * o.price; own < score {
			if w := sim.rollout(o, d, score-own); own+w < score {
				best, wait, score = o, w, own+w
			}
		}
	}
	for k := range sim.busy {
		o := &sim.busy[k]
		hold := o.start - s.Now
		own := hold + qlaCostShare*o.price
		if most := min(score-own, wait-hold); most > 0 {
			if w := sim.rollout(o, d, most); w < most {
				best, score = o, own+w
			}
		}
	}
	if best.start > s.Now {
		return Choice{Hold, sim.gpus[best.gpu].index, best.placement}
	}
	return Choice{Here, sim.gpus[best.gpu].index, best.placement}
}

// option is a placement for the head of the queue, with the time at which it becomes free and its price.
type option struct {
	gpu, placement int // gpu is an index in simState.gpus
	start, price   float64
}

// setOptions finds placements for a request that runs for d seconds. ready receives the cheapest free placements, and
// busy receives the cheapest placements that become free within hold seconds.
func (sim *simState) setOptions(pool *Pool, r Request, d, hold float64) {
	sim.ready, sim.busy = sim.ready[:0], sim.busy[:0]
	nodes := pool.nodeSlots()
	for k, g := range sim.gpus {
		p, ok := g.shape.model.ProfileIndex(r.Profile)
		if !ok {
			continue
		}
		now := g.group.Node.Open & g.shape.model.OfProfile(p)
		free := sim.free[g.slots:]
		for _, i := range g.shape.starts[p] {
			switch {
			case now.Has(i):
				m := g.group.acquisitionOf(i, p)
				price := g.shape.cost(free, i, sim.now, d, math.Inf(1)) + qlaAcquisitionPrice*float64(m) +
					nodes.cost(pool, g.index, sim.now, d)
				if m == Switch {
					price += qlaSwitchPrice
				}
				sim.ready = keepBest(sim.ready, option{k, i, sim.now, price})
			case free[i] > sim.now && free[i]-sim.now <= hold:
				price := g.shape.cost(free, i, free[i], d, math.Inf(1)) + qlaHoldPrice*(free[i]-sim.now) +
					nodes.cost(pool, g.index, free[i], d)
				sim.busy = keepBest(sim.busy, option{k, i, free[i], price})
			}
		}
	}
}

// keepBest adds o to the list of the cheapest options, which is in ascending order of price. Options with the same
// price remain in the order in which they were added.
func keepBest(options []option, o option) []option {
	k := len(options)
	for k > 0 && o.price < options[k-1].price {
		k--
	}
	switch {
	case k == qlaCandidates:
	case len(options) < qlaCandidates:
		options = slices.Insert(options, k, o)
	default:
		copy(options[k+1:], options[k:])
		options[k] = o
	}
	return options
}

// queued is a job behind the head.
type queued struct {
	profile  string
	duration float64
}

// setBehind copies, from the situation, the jobs behind the head that a rollout places.
func (sim *simState) setBehind(s *Situation) {
	sim.behind = sim.behind[:0]
	for _, r := range s.Behind[:min(len(s.Behind), qlaAhead)] {
		sim.behind = append(sim.behind, queued{r.Profile, s.counted(r)})
	}
	n := len(sim.behind) * len(sim.gpus)
	sim.bestSlots = slices.Grow(sim.bestSlots[:0], n)[:n]
}
