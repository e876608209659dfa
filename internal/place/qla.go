package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// QLA is queue look-ahead that may hold the head of the queue.
//
// [Lifetime] asks what a placement costs the slots around it, whoever wants them. But who wants them is known: the jobs that wait.
// So QLA tries the most promising placements for the head of the queue, and for each plays on: the jobs behind it are
// placed, in their order, each where a simple rule would put it, with every instance ending when it is expected to. What a
// placement is worth is how soon all of them start.
//
// That also answers a question which no rule about placements can ask: whether to place the head at all. A 1g.5gb that starts
// now on the last free unit of a half may keep a 4g.20gb waiting for an hour, while a better unit for it is free in a
// minute. So placements that are still busy are tried as well, and if one of them wins, the head is held: it keeps its turn,
// nothing behind it starts, and at the next event the question is asked again. In production holding is simply not to put
// the slice on offer.
//
//	candidates   the 8 free placements with the least slot cost c, and the 8 busy ones with the least c + 20 x the wait
//	slot cost    c = sum over the slots j that overlap it of w_j * max(0, end - max(start, F_j)): Lifetime's, but with
//	             w = 1.6 x the units for the profile of a whole GPU, which has only one start to lose
//	the others   each takes the slot with the least 300 x its own wait + c, at the earliest when the one before it starts
//	score        the head's wait + 0.01 x its cost + the waits of the next 32 in the queue and of 4 sampled arrivals
//
// The constants were tuned on churn on 16 A100s with a FIFO queue at load 0.85, seeds 1 to 3, and judged on seeds 101 to 105. What is
// missing to the optimum is mostly knowledge: of ends, and of arrivals. A job of unknown end counts as one that runs very long.
type QLA struct {
	// Ahead is how many of the queue are played on, by default 32: right when ends are exact; 16 when they are limits.
	Ahead int
	// Arrivals is how many expected ones are, by default 4; with uncertain ends -1, none.
	Arrivals int
}

const (
	qlaTries     = 8
	qlaWhole     = 1.6
	qlaHoldPrice = 20.0
	qlaCostShare = 0.01
	qlaWaitPrice = 300.0
)

// Choose implements [Policy].
func (q QLA) Choose(s *Situation, r Request) Choice {
	y := newYard(s)
	free, busy := y.tries(s.Pool, r)
	if len(free) == 0 {
		return Choice{}
	}
	behind := y.behind(s, q)
	best, bestScore, hold := -1, math.Inf(1), false
	for k, t := range append(free, busy...) {
		score := (t.start - s.Now) + qlaCostShare*t.price
		if score < bestScore {
			score += y.play(t, r.duration(), behind, bestScore-score)
		}
		if score < bestScore {
			best, bestScore, hold = k, score, k >= len(free)
		}
	}
	if hold {
		return Choice{Verdict: Hold}
	}
	return Choice{Here, y.lanes[free[best].lane].gpu, free[best].placement}
}

// yard is the GPUs of a situation, in a form that is quick to play on.
type yard struct {
	lanes []lane
	free  []float64 // of all lanes, one after the other: the F of every slot
	plays []float64 // a copy to play on
	now   float64
}

// lane is a GPU.
type lane struct {
	gpu    int
	base   int // of its slots in free
	shape  *shape
	member *member
}

// shape is what a board looks like to the yard.
type shape struct {
	names     []string
	starts    [][]int // by profile, its placements
	conflicts [][]int // by placement
	weights   []float64
}

func newYard(s *Situation) *yard {
	y := &yard{now: s.Now}
	for k := range s.Pool.gpus {
		if m := &s.Pool.gpus[k]; m.group != nil {
			y.lanes = append(y.lanes, lane{k, len(y.free), m.shape, m})
			y.free = append(y.free, m.free...)
		}
	}
	y.plays = make([]float64, len(y.free))
	return y
}

func shapeOf(b *mig.Board) *shape {
	sh := &shape{}
	for p, pr := range b.Profiles {
		sh.names = append(sh.names, pr.Name)
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
	return sh
}

// cost is the slot cost of placement i of a lane for a job that runs from start for d seconds.
func (sh *shape) cost(free []float64, i int, start, d float64) float64 {
	c := 0.0
	for _, j := range sh.conflicts[i] {
		if f := free[j]; f <= start {
			c += sh.weights[j] * d
		} else if f < start+d {
			c += sh.weights[j] * (start + d - f)
		}
	}
	return c
}

// try is a placement for the head of the queue: from when, and what that costs.
type try struct {
	lane, placement int
	start, price    float64
}

// tries are the best free and the best busy placements of the request, by price.
func (y *yard) tries(pool *Pool, r Request) (free, busy []try) {
	d := r.duration()
	now := map[*Group]map[int]bool{}
	pool.each(r.Profile, nil, func(g *Group, i int) {
		if now[g] == nil {
			now[g] = map[int]bool{}
		}
		now[g][i] = true
	})
	for l, la := range y.lanes {
		p := slices.Index(la.shape.names, r.Profile)
		if p < 0 {
			continue
		}
		f := y.free[la.base : la.base+len(la.shape.weights)]
		for _, i := range la.shape.starts[p] {
			switch {
			case now[la.member.group][i]:
				free = append(free, try{l, i, y.now, la.shape.cost(f, i, y.now, d)})
			case f[i] > y.now && !math.IsInf(f[i], 1):
				busy = append(busy, try{l, i, f[i], la.shape.cost(f, i, f[i], d) + qlaHoldPrice*(f[i]-y.now)})
			}
		}
	}
	best := func(all []try) []try {
		slices.SortStableFunc(all, func(a, b try) int { return cmp.Compare(a.price, b.price) })
		return all[:min(len(all), qlaTries)]
	}
	return best(free), best(busy)
}

// later is a job behind the head: from when it wants to start, and for how long.
type later struct {
	profile  string
	at       float64
	duration float64
	places   []int // by lane, the index of its profile in the shape; -1: none
}

func (y *yard) behind(s *Situation, q QLA) []later {
	ahead, arrivals := q.Ahead, q.Arrivals
	if ahead == 0 {
		ahead = 32
	}
	if arrivals == 0 {
		arrivals = 4
	}
	var all []later
	places := map[string][]int{}
	add := func(r Request, at float64) {
		of, ok := places[r.Profile]
		if !ok {
			for _, la := range y.lanes {
				of = append(of, slices.Index(la.shape.names, r.Profile))
			}
			places[r.Profile] = of
		}
		all = append(all, later{r.Profile, at, r.duration(), of})
	}
	for _, r := range s.Behind[:min(len(s.Behind), ahead)] {
		add(r, s.Now)
	}
	for _, a := range s.Expected[:min(len(s.Expected), max(arrivals, 0))] {
		add(a.Request, max(a.At, s.Now))
	}
	return all
}

// play puts the head at t and then the others, in their order, and answers the sum of the others' waits. It gives up, with +Inf, when
// that exceeds the limit.
func (y *yard) play(t try, d float64, behind []later, limit float64) float64 {
	copy(y.plays, y.free)
	y.put(t.lane, t.placement, t.start+d)
	sum, last := 0.0, t.start
	for _, j := range behind {
		earliest := max(last, j.at)
		lane, place, start := y.pick(j, earliest)
		if lane < 0 {
			continue // no GPU has the profile, or none ever again
		}
		y.put(lane, place, start+j.duration)
		last = start
		if sum += start - j.at; sum > limit {
			return math.Inf(1)
		}
	}
	return sum
}

// pick finds the slot with the least price for a job that may start from earliest.
func (y *yard) pick(j later, earliest float64) (lane, place int, start float64) {
	lane, best := -1, math.Inf(1)
	for l := range y.lanes {
		la := &y.lanes[l]
		p := j.places[l]
		if p < 0 {
			continue
		}
		free := y.plays[la.base : la.base+len(la.shape.weights)]
		for _, i := range la.shape.starts[p] {
			from := max(earliest, free[i])
			price := qlaWaitPrice * (from - earliest)
			if price >= best {
				continue
			}
			if price += la.shape.cost(free, i, from, j.duration); price < best {
				lane, place, start, best = l, i, from, price
			}
		}
	}
	return lane, place, start
}

func (y *yard) put(lane, place int, end float64) {
	la := &y.lanes[lane]
	for _, j := range la.shape.conflicts[place] {
		if f := &y.plays[la.base+j]; *f < end {
			*f = end
		}
	}
}
