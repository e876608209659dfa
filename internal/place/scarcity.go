package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// Scarcity is the policy that assigns a price to the time for which a placement blocks a slot. The fewer slots of the
// same profile are free at that time, the higher the price. The price decreases with time, because future requests are
// unknown. The cost of a placement is a sum over the slots j that overlap it. The term for a slot of profile p is
//
//	the integral from max(now, F_j) to the expected end of
//	    w_p * exp(-(t-now) / (1.12 * mean duration)) * (N_p(t) / (G n_p) + 0.263)^-1.88 dt
//
// N_p(t) is the number of slots of p that are free at time t if no other jobs arrive. G is the number of GPUs that
// support profile p, and n_p is the number of possible starts of p. w_p is size^0.26, multiplied by 1.71 for the
// profile that spans a whole GPU. The constants were fitted to churn without a queue (load 1.0 on 32 A100s). With this
// workload, Scarcity accepts slightly more slice-hours than [Lifetime]. With a queue, [QLA] is better.
type Scarcity struct{}

const (
	scarcityFar      = 1.12
	scarcityOffset   = 0.263
	scarcityExponent = -1.88
	scarcitySize     = 0.26
	scarcityWhole    = 1.71
)

// Choose implements [Policy].
func (Scarcity) Choose(s *Situation, r Request) Choice {
	far := s.MeanDuration
	if far <= 0 {
		far = r.duration()
	}
	market := newMarket(s.Pool, s.Now, scarcityFar*far)
	end := s.Now + r.duration()
	best := none
	s.Pool.every(r.Profile, func(g *Group, i int, m Acquisition) {
		second := acquisitionCost(g, i, m)
		for _, k := range g.GPUs {
			c := candidate{cost{0, second}, k, i}
			free := s.Pool.gpus[k].free
			for j := range g.Model.Conflicts(i).Indices() {
				if from := max(s.Now, free[j]); from < end {
					c.first += market.price(g.Model, g.Model.Placements[j].Profile, from, end)
				}
			}
			if c.before(best) {
				best = c
			}
			if g.Model.Conflicts(i)&^g.clear == 0 {
				break // all GPUs of the group have equal costs
			}
		}
	})
	return best.choice()
}

// market holds the price of blocking a slot, by profile name.
type market struct {
	now, far float64
	curves   map[string]*curve
}

// curve is the price of a profile over time, before discounting. It is constant between the times at which slots become
// free.
type curve struct {
	slots   int
	frees   []float64 // the times from now on at which slots become free, in ascending order
	prices  []float64 // the price from frees[k-1] (for k = 0, from now) to frees[k]
	sum     []float64 // the discounted integral of the price from now to frees[k]
	perUnit float64   // w_p
}

func newMarket(p *Pool, now, far float64) *market {
	m := &market{now: now, far: far, curves: map[string]*curve{}}
	for k := range p.gpus {
		g := &p.gpus[k]
		if g.group == nil {
			continue
		}
		for j, pl := range g.Model.Placements {
			name := g.Model.Profiles[pl.Profile].Name
			c := m.curves[name]
			if c == nil {
				c = &curve{perUnit: math.Pow(float64(pl.Size), scarcitySize)}
				if pl.Size == g.Model.Grid {
					c.perUnit *= scarcityWhole
				}
				m.curves[name] = c
			}
			c.slots++
			c.frees = append(c.frees, max(now, g.free[j]))
		}
	}
	for _, c := range m.curves {
		slices.Sort(c.frees)
		c.prices = make([]float64, len(c.frees)+1)
		c.sum = make([]float64, len(c.frees))
		from, total := now, 0.0
		for k := range c.prices {
			c.prices[k] = c.perUnit * math.Pow(float64(k)/float64(c.slots)+scarcityOffset, scarcityExponent)
			if k < len(c.frees) {
				total += c.prices[k] * m.discount(from, c.frees[k])
				c.sum[k], from = total, c.frees[k]
			}
		}
	}
	return m
}

// discount returns the integral of exp(-(t-now)/far) from a to b.
func (m *market) discount(a, b float64) float64 {
	return m.far * (math.Exp(-(a-m.now)/m.far) - math.Exp(-(b-m.now)/m.far))
}

// price returns the price of blocking a slot of profile p from a to b (seconds).
func (m *market) price(model *mig.Model, p int, a, b float64) float64 {
	c := m.curves[model.Profiles[p].Name]
	return c.until(m, b) - c.until(m, a)
}

// until returns the discounted integral of the price from now to t.
func (c *curve) until(m *market, t float64) float64 {
	k, _ := slices.BinarySearchFunc(c.frees, t, func(f, t float64) int { return cmp.Compare(f, t) })
	if k == 0 {
		return c.prices[0] * m.discount(m.now, t)
	}
	return c.sum[k-1] + c.prices[k]*m.discount(c.frees[k-1], t)
}
