package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// QLA is queue look-ahead that may hold the head of the queue.
//
// [Lifetime] asks what a placement costs the slots around it, whoever wants them. But who wants them is known: the jobs
// that wait. So QLA tries the most promising placements for the head of the queue, and for each plays on: the jobs
// behind it are placed, in their order, each where a simple rule would put it, with every instance ending when it is
// expected to. What a placement is worth is how soon all of them start.
//
// That also answers a question which no rule about placements can ask: whether to place the head at all. A 1g.5gb that
// starts now on the last free unit of a half may keep a 4g.20gb waiting for an hour, while a better unit for it is free
// in a minute. So placements that are still busy are tried as well, and if one of them wins, the head is held: it keeps
// its turn, nothing behind it starts, and at the next event the question is asked again. In production holding is
// simply not to put the slice on offer.
//
//	candidates   the 8 free placements with the least slot cost c, and the 8 busy ones with the least c + 20 x the wait
//	slot cost    c = sum over the slots j that overlap it of w_j * max(0, end - max(start, F_j)): Lifetime's, but with
//	             w = 1.6 x the units for the profile of a whole GPU, which has only one start to lose
//	the others   each takes the slot with the least 300 x its own wait + c, at the earliest when the one before it starts
//	score        the head's wait + 0.01 x its cost + the waits of the next 24 in the queue
//
// A hold leaves a GPU idle, so four rules bound it:
//
//   - The queue is ordered ([Situation.Ordered]). With backfill holds gain nothing: 0.97 of best-fit's mean wait without them
//     and 1.15 with them at a site where few jobs wait (trace.Site, through offers), and the same on churn within about 5%.
//   - The head is held only if the waits of the jobs behind it become shorter by more than the hold, as played. The slot cost
//     may prefer a hold; it never justifies one. So a job that is alone in the queue starts at once.
//   - Costs and plays count at most twice the recent mean of a job's duration, as [Lifetime] does. Without that cap the cost
//     grows with the stated duration: a job without a limit was held for up to 12.8% of 1e7 s beside an idle GPU.
//   - A hold is expected to last at most half the recent mean. A bad estimate of the ends cannot keep a GPU idle for longer.
//
// The recent mean is [Situation.MeanDuration], of the jobs whose duration is known. If there are none, no job is held.
//
// The constants were tuned on churn on 16 A100s with a FIFO queue at load 0.85, seeds 1 to 10, with exact ends and with
// limits. They are on a plateau: half and twice of each changes little. The first two rows compare what is with what
// was. The others are what was tried before holds were bounded and did not pay (mean waits as ratios to best-fit,
// uniform6 / skew-small / bimodal / four-equal):
//
//	                                         exact ends             limits 1 to 6 x too long, corrected
//	as it is                                 .21 / .12 / .29 / .24  .43 / .39 / .48 / .51
//	without bounds on holds                  .20 / .11 / .26 / .24  .42 / .36 / .44 / .44
//	playing on 32, and 4 sampled arrivals    .19 / .10 / .26 / .23  .41 / .43 / .46 / .47
//	playing on 32, and 16 sampled arrivals   .21 / .13 / .27 / .24
//	playing each try 16 times, with ends and
//	durations drawn from what is known                              .36 / .32 / .40 / .44   at 16 times the cost
//	expecting ends 30% later, 25% earlier                           .40 / .39 / .48 / .51, .39 / .39 / .43 / .49
//
// Better knowledge of ends would help most.
type QLA struct{}

const (
	qlaAhead     = 24
	qlaTries     = 8
	qlaWhole     = 1.6
	qlaHoldPrice = 20.0
	qlaCostShare = 0.01
	qlaWaitPrice = 300.0
	// unit-seconds, for each step from an idle instance to free units to those of other idle instances
	qlaMeansPrice = 1.0
	qlaHold       = 0.5 // how long a hold may last, in recent means: 0.1 is worse, without this limit it is no better
)

// Choose implements [Policy].
func (QLA) Choose(s *Situation, r Request) Choice {
	if !s.Pool.has(r.Profile) {
		return Choice{}
	}
	y := &s.Pool.yard
	y.enter(s)
	d := s.counted(r)
	hold := 0.0
	if s.Ordered {
		hold = s.MeanDuration * qlaHold
	}
	y.options(r, d, hold)
	y.line(s)
	best, wait, score := &y.ready[0], math.Inf(1), math.Inf(1) // wait: the sum of the others'
	for k := range y.ready {
		t := &y.ready[k]
		if own := qlaCostShare * t.price; own < score {
			if w := y.rollout(t, d, score-own); own+w < score {
				best, wait, score = t, w, own+w
			}
		}
	}
	for k := range y.busy {
		t := &y.busy[k]
		hold := t.start - s.Now
		own := hold + qlaCostShare*t.price
		if most := min(score-own, wait-hold); most > 0 {
			if w := y.rollout(t, d, most); w < most {
				best, score = t, own+w
			}
		}
	}
	if best.start > s.Now {
		return Choice{Hold, y.lanes[best.lane].gpu, best.placement}
	}
	return Choice{Here, y.lanes[best.lane].gpu, best.placement}
}

// simState is a situation that is simulated: its GPUs in a form that is quick to change. It belongs to a pool, so that
// a decision allocates nothing.
type simState struct {
	now   float64
	lanes []gpuState
	free  []float64 // of all lanes, one after the other: the F of every slot
	plays []float64 // the copy that is played on
	first []float64 // by lane and profile, the least of its slots' plays
	clean []float64 // first before anything is played

	// What is played differs little from try to try: most GPUs are as they were when the same job was placed at the
	// same time. state tells how a lane has come about; seen is, by job and lane, the best slot that was found for a
	// state and a time.
	state []uint64
	fresh uint64
	seen  []bestSlot

	ready, busy []option // for the head: free now, and later
	behind      []later  // the others
}

// gpuState is a GPU.
type gpuState struct {
	gpu    int
	slots  int // where its slots begin in free
	firsts int // where its profiles begin in first
	shape  *shape
	group  *Group
}

// shape is what a GPU model looks like to the yard.
type shape struct {
	board     *mig.Model
	starts    [][]int // by profile, its placements
	conflicts [][]int // by placement
	weights   []float64
}

func shapeOf(b *mig.Model) *shape {
	sh := &shape{board: b}
	for p := range b.Profiles {
		sh.starts = append(sh.starts, slices.Collect(b.OfProfile(p).Indices()))
	}
	for i, pl := range b.Placements {
		sh.conflicts = append(sh.conflicts, slices.Collect(b.Conflicts(i).Indices()))
		w := float64(pl.Size)
		if pl.Size == b.Grid {
			w *= qlaWhole
		}
		sh.weights = append(sh.weights, w)
	}
	for _, of := range sh.conflicts { // the heaviest first: a sum exceeds its limit soon
		slices.SortStableFunc(of, func(i, j int) int { return cmp.Compare(sh.weights[j], sh.weights[i]) })
	}
	return sh
}

// cost is the slot cost of placement i of a lane with these F for a job that runs from start for d seconds. It is not
// summed up to the end when it exceeds the limit.
func (sh *shape) cost(free []float64, i int, start, d, limit float64) float64 {
	c := 0.0
	for _, j := range sh.conflicts[i] {
		switch wait := free[j] - start; {
		case wait <= 0:
			c += sh.weights[j] * d
		case wait < d:
			c += sh.weights[j] * (d - wait)
		default:
			continue
		}
		if c > limit {
			break
		}
	}
	return c
}

func (y *simState) enter(s *Situation) {
	y.now = s.Now
	y.lanes, y.free, y.clean = y.lanes[:0], y.free[:0], y.clean[:0]
	for k := range s.Pool.gpus {
		m := &s.Pool.gpus[k]
		if m.group == nil {
			continue
		}
		b := s.Pool.of(m.Model)
		if b.shape == nil {
			b.shape = shapeOf(m.Model)
		}
		y.lanes = append(y.lanes, gpuState{k, len(y.free), len(y.clean), b.shape, m.group})
		y.free = append(y.free, m.free...)
		for _, starts := range b.shape.starts {
			y.clean = append(y.clean, least(m.free, starts))
		}
	}
	y.plays = append(y.plays[:0], y.free...)
	y.first = append(y.first[:0], y.clean...)
	y.fresh++
	y.state = append(y.state[:0], make([]uint64, len(y.lanes))...)
}

func least(free []float64, starts []int) float64 {
	f := math.Inf(1)
	for _, i := range starts {
		if free[i] < f {
			f = free[i]
		}
	}
	return f
}

// option is a placement for the head of the queue: from when, and what that costs.
type option struct {
	lane, placement int
	start, price    float64
}

// options finds the best free placements of a request that runs for d seconds, and the best of those that become free
// within hold seconds, by price.
func (y *simState) options(r Request, d, hold float64) {
	y.ready, y.busy = y.ready[:0], y.busy[:0]
	for l, la := range y.lanes {
		p, ok := la.shape.board.ProfileIndex(r.Profile)
		if !ok {
			continue
		}
		now := la.group.Busy.Open & la.shape.board.OfProfile(p)
		free := y.free[la.slots:]
		for _, i := range la.shape.starts[p] {
			switch {
			case now.Has(i):
				y.ready = keepBest(
					y.ready,
					option{
						l,
						i,
						y.now,
						la.shape.cost(free, i, y.now, d, math.Inf(1)) + qlaMeansPrice*float64(la.group.meansOf(i, p)),
					},
				)
			case free[i] > y.now && free[i]-y.now <= hold:
				y.busy = keepBest(
					y.busy,
					option{
						l,
						i,
						free[i],
						la.shape.cost(free, i, free[i], d, math.Inf(1)) + qlaHoldPrice*(free[i]-y.now),
					},
				)
			}
		}
	}
}

// keepBest puts t among the cheapest options, ascending; of equals the earlier ones stay before it.
func keepBest(tries []option, t option) []option {
	k := len(tries)
	for k > 0 && t.price < tries[k-1].price {
		k--
	}
	switch {
	case k == qlaTries:
	case len(tries) < qlaTries:
		tries = slices.Insert(tries, k, t)
	default:
		copy(tries[k+1:], tries[k:])
		tries[k] = t
	}
	return tries
}

// later is a job behind the head.
type later struct {
	profile  string
	duration float64
}

// line lists those that are played on behind the head.
func (y *simState) line(s *Situation) {
	y.behind = y.behind[:0]
	for _, r := range s.Behind[:min(len(s.Behind), qlaAhead)] {
		y.behind = append(y.behind, later{r.Profile, s.counted(r)})
	}
	n := len(y.behind) * len(y.lanes)
	y.seen = slices.Grow(y.seen[:0], n)[:n]
}

// play puts the head at t and then the others, in their order, and answers the sum of the others' waits. It gives up,
// with +Inf, as soon as that must exceed the limit: none of those that wait starts before the one in front of it.
func (y *simState) rollout(t *option, d float64, limit float64) float64 {
	copy(y.plays, y.free)
	copy(y.first, y.clean)
	for l := range y.state {
		y.state[l] = y.fresh << 32
	}
	y.put(t.lane, t.placement, t.start+d)
	sum, last := 0.0, t.start
	for k := range y.behind {
		j := &y.behind[k]
		lane := y.pick(k, last)
		if lane < 0 {
			continue // no GPU has the profile, or none ever again
		}
		at := &y.seen[k*len(y.lanes)+lane]
		start := at.start
		y.put(lane, at.place, start+j.duration)
		last = start
		sum += start - y.now
		if sum+float64(len(y.behind)-k-1)*(start-y.now) > limit {
			return math.Inf(1)
		}
	}
	return sum
}

// sight is the best slot of a lane for a job that may start from some time, and its price.
type bestSlot struct {
	state        uint64
	from         float64
	price, start float64
	place        int
}

// pick finds the lane with the least price for the k-th job behind the head, which may start from then; seen says where
// on it. -1: none.
func (y *simState) pick(k int, from float64) (lane int) {
	j := &y.behind[k]
	lane, best := -1, math.Inf(1)
	var model *mig.Model
	var p int
	var has bool
	for l := range y.lanes {
		la := &y.lanes[l]
		if la.shape.board != model {
			model = la.shape.board
			p, has = model.ProfileIndex(j.profile)
		}
		if !has || qlaWaitPrice*(y.first[la.firsts+p]-from) >= best {
			continue
		}
		at := &y.seen[k*len(y.lanes)+l]
		if at.state != y.state[l] || at.from != from {
			at.state, at.from = y.state[l], from
			at.consider(la.shape, y.plays[la.slots:], p, j.duration)
		}
		if at.price < best {
			lane, best = l, at.price
		}
	}
	return lane
}

// look finds it, for a job of profile p that runs for d seconds.
func (at *bestSlot) consider(sh *shape, free []float64, p int, d float64) {
	best, from := math.Inf(1), at.from
	for _, i := range sh.starts[p] {
		start, price := from, 0.0
		if f := free[i]; f > from {
			start, price = f, qlaWaitPrice*(f-from)
		}
		if price >= best {
			continue
		}
		if price += sh.cost(free, i, start, d, best-price); price < best {
			best = price
			at.start, at.place = start, i
		}
	}
	at.price = best
}

// put makes a slot busy until end.
func (y *simState) put(l, place int, end float64) {
	la := &y.lanes[l]
	free := y.plays[la.slots:]
	for _, j := range la.shape.conflicts[place] {
		if free[j] < end {
			free[j] = end
		}
	}
	for p, starts := range la.shape.starts {
		y.first[la.firsts+p] = least(free, starts)
	}
	y.state[l] = (y.state[l]+uint64(place)+1)*0x9e3779b97f4a7c15 ^ math.Float64bits(end)
}
