package sim

import (
	"cmp"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// batches takes jobs from the queue several at a time, as DynaP does (DynaP, placement-aware dynamic partitioning,
// 2025): of the first W that wait, W being the number of instances that a GPU can hold (7 on an A100), the subset
// starts that fits on one GPU beside what is busy there and makes the system throughput largest:
//
//	the share of the GPU's units that is in use then x the sum of the relative speeds of the jobs that are on it then
//
// The relative speed of a job is that on its profile compared with a whole GPU (trace.Job.Speed), 1 where it runs as
// fast on all. It is found by branch and bound, pruned by the free units and compute slices. Of two subsets with the
// same throughput the one with the earlier jobs is taken: the first job that only one of them has decides. A job of
// several slices starts on one GPU or not at all.
//
// GPUs are looked at in the order of their free shares, the least above 0 first, then in their own; where a subset
// fits, it starts at once, and the next turn begins. Where on the GPU each job goes is the policy's choice on a pool of
// this GPU alone, the largest profiles first; a subset for which that finds no room, or would rather hold a job, does
// not fit. A job that makes less of a GPU than others may wait for ever.
type batches struct {
	s    *simulation
	cut  *cut
	most []int           // by kind of GPU model, W
	one  *place.Pool     // one GPU, as it would be with a subset
	sit  place.Situation // of it

	// The search on one GPU.
	gpu    int
	window []*member // in the order of submission
	dense  []*member // the same by falling speed per unit
	taken  []*member // the subset in the making
	best   float64   // throughput
	found  []member  // the subset that has it, in the order of placing; empty: none fits
}

// member is a job of the window.
type member struct {
	*job
	at      int // in the queue
	order   int // in the window
	profile mig.Profile
	takes   resources // all its slices together
	speed   float64
	request place.Request
	spots   []place.Spot // of found: where its slices go
}

// resources of a GPU.
type resources struct{ units, compute int }

func (r resources) less(o resources) resources {
	return resources{r.units - o.units, r.compute - o.compute}
}

func (r resources) cover(o resources) bool { return r.units >= o.units && r.compute >= o.compute }

// throughput of a GPU has two factors. The units stand for their share of all the GPU's.
type throughput struct {
	units int
	speed float64
}

func (t throughput) value() float64 { return float64(t.units) * t.speed }

func (t throughput) with(m *member) throughput {
	return throughput{t.units + m.takes.units, t.speed + m.speed}
}

// lessThroughput is a share of a throughput by which another must exceed it to be better: sums of speeds are rounded.
const lessThroughput = 1e-9

func newBatches(c *cut) *batches {
	b := &batches{s: c.s, cut: c, one: place.NewPool(make([]place.GPU, 1))}
	for _, model := range c.s.kinds {
		most := 0
		for _, l := range model.Maximal() {
			most = max(most, l.Count())
		}
		b.most = append(b.most, most)
	}
	return b
}

// batch starts the jobs whose turn it is; false when no subset fits anywhere.
func (s *simulation) batch() bool {
	all := s.batches.next()
	var left []int
	for _, m := range all {
		s.batches.cut.decided = m.spots
		s.room.place(m.at, nil)
		left = append(left, m.at)
	}
	slices.Sort(left)
	for _, at := range slices.Backward(left) {
		s.queue.remove(at)
	}
	return len(all) > 0
}

// next is the subset whose turn it is, in the order of placing; empty when none fits anywhere.
func (b *batches) next() []member {
	b.cut.foresee()
	b.cut.gather(0)
	b.sit = b.cut.Situation
	b.sit.Pool = b.one
	speeds := b.speeds()
	for _, k := range b.order() {
		if b.search(k, speeds[k]); len(b.found) > 0 {
			return b.found
		}
	}
	return nil
}

// speeds is, by GPU, the sum of the relative speeds of what runs there.
func (b *batches) speeds() []float64 {
	all := make([]float64, len(b.s.GPUs))
	for _, j := range b.s.running {
		k := j.spots[0].GPU
		all[k] += j.SpeedOn(j.profiles[b.kind(k)])
	}
	return all
}

// kind is the number of a GPU's kind of GPU model.
func (b *batches) kind(gpu int) int { return slices.Index(b.s.kinds, b.s.GPUs[gpu]) }

// order is the GPUs that are worth a look, in their order: the first of those on which the same stands, since what does
// not fit there fits on none of them; but all of them where the policy looks at when things end.
func (b *batches) order() (all []int) {
	type standing struct {
		board        *mig.Model
		layout, idle mig.Layout
		gpu          int // where ends count
	}
	pool := b.cut.Pool
	seen := map[standing]bool{}
	for k := range pool.Len() {
		g := pool.GPU(k)
		s := standing{board: g.Model, layout: g.Layout, idle: g.Idle}
		if b.cut.inputs.Ends && g.Layout != 0 {
			s.gpu = k
		}
		if pool.Busy(k).Units > 0 && !seen[s] {
			seen[s] = true
			all = append(all, k)
		}
	}
	share := func(k int) float64 { return float64(pool.Busy(k).Units) / float64(b.s.GPUs[k].Grid) }
	slices.SortStableFunc(all, func(i, j int) int { return cmp.Compare(share(i), share(j)) })
	return all
}

// search finds the best subset for a GPU, given the sum of the speeds of what runs there.
func (b *batches) search(gpu int, speed float64) {
	model, node := b.s.GPUs[gpu], b.cut.Pool.Busy(gpu)
	b.gpu = gpu
	b.inspect(model, node)
	busy := throughput{model.Grid - node.Units, speed}
	b.taken, b.found = b.taken[:0], nil
	b.best = busy.value() // of nobody, whom every subset exceeds
	b.visit(0, resources{node.Units, node.Compute}, busy)
}

// look makes the window of a GPU: of the first who wait, those who would fit alone.
func (b *batches) inspect(model *mig.Model, node *mig.Node) {
	b.window = b.window[:0]
	kind := b.kind(b.gpu)
	for at := range min(b.s.queue.len(), b.most[kind]) {
		j := b.s.queue.at(at)
		p, ok := model.ProfileIndex(j.profiles[kind])
		if !ok || node.Placeable(p) < j.slices() {
			continue
		}
		m := &member{job: j, at: at, order: len(b.window), profile: model.Profiles[p], request: b.s.request(j)}
		m.request.Profile = m.profile.Name
		m.takes = resources{j.slices() * m.profile.Size, j.slices() * m.profile.Compute}
		m.speed = j.SpeedOn(m.profile.Name)
		b.window = append(b.window, m)
	}
	b.dense = append(b.dense[:0], b.window...)
	slices.SortStableFunc(b.dense, func(a, c *member) int {
		return cmp.Compare(c.speed/float64(c.takes.units), a.speed/float64(a.takes.units))
	})
}

// visit decides on the k-th of the window and all after it, with the subset in the making and what it leaves free.
// Subsets with the earlier jobs come first.
func (b *batches) visit(k int, free resources, t throughput) {
	if !b.better(b.bound(k, free, t)) {
		return
	}
	if k == len(b.window) {
		if found, ok := b.fits(); ok {
			b.best, b.found = t.value(), found
		}
		return
	}
	if m := b.window[k]; free.cover(m.takes) {
		b.taken = append(b.taken, m)
		b.visit(k+1, free.less(m.takes), t.with(m))
		b.taken = b.taken[:len(b.taken)-1]
	}
	b.visit(k+1, free, t)
}

func (b *batches) better(value float64) bool { return value > b.best*(1+lessThroughput) }

// bound is at least the throughput of every subset that adds some of the window from the k-th on to one of throughput
// t: what is added takes at most the free units, so it adds no more units than are free and no more speed than these
// units filled with the fastest for their size first, the last of them in part. It is the throughput itself when all
// are decided.
func (b *batches) bound(k int, free resources, t throughput) float64 {
	left := free.units
	for _, m := range b.dense {
		if left == 0 {
			break
		}
		if m.order < k {
			continue
		}
		units := min(left, m.takes.units)
		left -= units
		t.units += units
		t.speed += m.speed * float64(units) / float64(m.takes.units)
	}
	return t.value()
}

// fits has the policy place the subset in the making on the GPU, and answers with it in the order of placing.
func (b *batches) fits() ([]member, bool) {
	var all []member
	for _, m := range b.taken {
		all = append(all, *m)
	}
	slices.SortStableFunc(all, func(a, c member) int {
		return cmp.Or(cmp.Compare(c.profile.Size, a.profile.Size), cmp.Compare(c.profile.Compute, a.profile.Compute))
	})
	b.one.Set(0, b.cut.Pool.GPU(b.gpu))
	requests := make([]place.Request, len(all))
	for k := range all {
		requests[k] = all[k].request
	}
	for k := range all {
		m := &all[k]
		b.sit.Behind = requests[k+1:]
		for range m.slices() {
			choice := b.s.Policy.Choose(&b.sit, m.request)
			if choice.Verdict != place.Here {
				return nil, false
			}
			b.one.Start(0, choice.Placement, b.s.now+m.request.Duration)
			m.spots = append(m.spots, place.Spot{GPU: b.gpu, Placement: choice.Placement})
		}
	}
	return all, true
}
