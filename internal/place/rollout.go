package place

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/mig"
)

// simState is the state of a simulation. It holds a situation's GPUs in a form that can be changed quickly. Each pool
// reuses a single simState, so that a decision does not allocate memory.
type simState struct {
	now      float64
	gpus     []gpuState
	free     []float64 // the time F of every slot, GPU by GPU
	simFree  []float64 // a copy of free that a rollout changes
	first    []float64 // for each GPU and profile, the smallest F of its slots
	simFirst []float64 // a copy of first that a rollout changes

	// If two rollouts place a job at the same time, most GPUs are in the same state in both. bestSlots therefore caches
	// the best slot for each job and GPU, along with the version of the GPU and the time for which the slot was found.
	// version identifies the changes to each GPU since the beginning of the rollout.
	version   []uint64
	decision  uint64 // the number of the decision, which is part of every version
	bestSlots []bestSlot

	ready, busy []option // the best free and the best busy placements for the head
	behind      []queued // the jobs behind the head
}

// gpuState is a GPU of a simulation.
type gpuState struct {
	index  int // index in the pool
	slots  int // index of the GPU's first slot in free and simFree
	firsts int // index of the GPU's first profile in first and simFirst
	shape  *shape
	group  *Group
}

// shape is the data that a simulation needs about a GPU model.
type shape struct {
	model     *mig.Model
	starts    [][]int // the placements of each profile
	conflicts [][]int // the placements that overlap each placement, sorted by weight, heaviest first
	weights   []float64
}

func shapeOf(b *mig.Model) *shape {
	sh := &shape{model: b}
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
	for _, of := range sh.conflicts { // a sum that begins with the heaviest placements exceeds the limit sooner
		slices.SortStableFunc(of, func(i, j int) int { return cmp.Compare(sh.weights[j], sh.weights[i]) })
	}
	return sh
}

// cost returns the slot cost of placement i for a job that starts at start and runs for d seconds. free holds the
// slots' times F. If the sum exceeds limit, cost returns only part of it.
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

// enter initializes the simulation from a situation.
func (sim *simState) enter(s *Situation) {
	sim.now = s.Now
	sim.gpus, sim.free, sim.first = sim.gpus[:0], sim.free[:0], sim.first[:0]
	for k := range s.Pool.gpus {
		m := &s.Pool.gpus[k]
		if m.group == nil {
			continue
		}
		b := s.Pool.of(m.Model)
		if b.shape == nil {
			b.shape = shapeOf(m.Model)
		}
		sim.gpus = append(sim.gpus, gpuState{k, len(sim.free), len(sim.first), b.shape, m.group})
		sim.free = append(sim.free, m.free...)
		for _, starts := range b.shape.starts {
			sim.first = append(sim.first, least(m.free, starts))
		}
	}
	sim.simFree = append(sim.simFree[:0], sim.free...)
	sim.simFirst = append(sim.simFirst[:0], sim.first...)
	sim.decision++
	sim.version = append(sim.version[:0], make([]uint64, len(sim.gpus))...)
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

// rollout places the head at o and then the jobs behind the head in order. It returns the sum of these jobs' waits, in
// seconds, or +Inf if the sum exceeds the limit. No job starts before the previous one, so rollout can stop before all
// jobs are placed.
func (sim *simState) rollout(o *option, d float64, limit float64) float64 {
	copy(sim.simFree, sim.free)
	copy(sim.simFirst, sim.first)
	for k := range sim.version {
		sim.version[k] = sim.decision << 32
	}
	sim.put(o.gpu, o.placement, o.start+d)
	sum, last := 0.0, o.start
	for k := range sim.behind {
		j := &sim.behind[k]
		gpu := sim.pick(k, last)
		if gpu < 0 {
			continue // no GPU has the profile, or none of its slots becomes free
		}
		at := &sim.bestSlots[k*len(sim.gpus)+gpu]
		start := at.start
		sim.put(gpu, at.placement, start+j.duration)
		last = start
		sum += start - sim.now
		if sum+float64(len(sim.behind)-k-1)*(start-sim.now) > limit {
			return math.Inf(1)
		}
	}
	return sum
}

// bestSlot is the best slot on a GPU, and its price, for a job that cannot start before a certain time.
type bestSlot struct {
	version      uint64
	from         float64
	price, start float64
	placement    int
}

// pick returns the GPU with the lowest price for the k-th job behind the head, or -1 if no GPU has a slot. The job
// cannot start before from, which is a time in seconds. The slot on the returned GPU is in bestSlots.
func (sim *simState) pick(k int, from float64) (gpu int) {
	j := &sim.behind[k]
	gpu, best := -1, math.Inf(1)
	var model *mig.Model
	var p int
	var has bool
	for n := range sim.gpus {
		g := &sim.gpus[n]
		if g.shape.model != model {
			model = g.shape.model
			p, has = model.ProfileIndex(j.profile)
		}
		if !has || qlaWaitPrice*(sim.simFirst[g.firsts+p]-from) >= best {
			continue
		}
		at := &sim.bestSlots[k*len(sim.gpus)+n]
		if at.version != sim.version[n] || at.from != from {
			at.version, at.from = sim.version[n], from
			at.find(g.shape, sim.simFree[g.slots:], p, j.duration)
		}
		if at.price < best {
			gpu, best = n, at.price
		}
	}
	return gpu
}

// find finds the best slot for a job that needs profile p and runs for d seconds.
func (at *bestSlot) find(sh *shape, free []float64, p int, d float64) {
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
			at.start, at.placement = start, i
		}
	}
	at.price = best
}

// put marks a slot as busy until end.
func (sim *simState) put(gpu, placement int, end float64) {
	g := &sim.gpus[gpu]
	free := sim.simFree[g.slots:]
	for _, j := range g.shape.conflicts[placement] {
		if free[j] < end {
			free[j] = end
		}
	}
	for p, starts := range g.shape.starts {
		sim.simFirst[g.firsts+p] = least(free, starts)
	}
	sim.version[gpu] = (sim.version[gpu]+uint64(placement)+1)*0x9e3779b97f4a7c15 ^ math.Float64bits(end)
}
