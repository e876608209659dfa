package place

import (
	"math"
	"slices"

	"caelum/internal/mig"
)

// Pool is any number of GPUs of any GPU models. GPUs on which the same stands form a group: there are thousands of GPUs
// in a large cluster and only hundreds of layouts, so what depends on the layout alone is judged once a group. Not safe
// for concurrent use.
type Pool struct {
	gpus   []member
	groups map[standing]*Group
	boards []modelGroups
	yard   simState // scratch
	alike  Weights
}

// standing is what makes a group.
type standing struct {
	board   *mig.Model
	layout  mig.Layout
	idle    mig.Layout
	blocked uint64
}

type modelGroups struct {
	board  *mig.Model
	groups []*Group
	shape  *shape // made when something is played on it
}

// member is a GPU of the pool.
type member struct {
	GPU
	group *Group
	// free is, by placement, when everything that overlaps it will have ended (seconds; 0: nothing does, +Inf:
	// unknown). The F of lifetime and qla.
	free []float64
}

// Group is the GPUs on which the same stands.
type Group struct {
	Model *mig.Model
	Busy  *mig.Node // what is busy
	Idle  mig.Layout
	GPUs  []int // indices in the pool, ascending

	both  *mig.Node  // busy and idle
	clear mig.Layout // placements that share no unit with what is busy or blocked
	place int        // index in its GPU model's groups
}

// NewPool makes a pool of GPUs. A GPU without a GPU model is in no group: nothing can be placed on it.
func NewPool(gpus []GPU) *Pool {
	p := &Pool{groups: map[standing]*Group{}, gpus: make([]member, len(gpus))}
	for k, g := range gpus {
		p.Set(k, g)
	}
	return p
}

// Len is the number of GPUs.
func (p *Pool) Len() int { return len(p.gpus) }

// GPU is what stands on the k-th GPU.
func (p *Pool) GPU(k int) GPU { return p.gpus[k].GPU }

// Busy is what is busy on the k-th GPU, as a node of its GPU model's table; nil for a GPU without a GPU model.
func (p *Pool) Busy(k int) *mig.Node {
	if p.gpus[k].group == nil {
		return nil
	}
	return p.gpus[k].group.Busy
}

// Set says what stands on the k-th GPU now.
func (p *Pool) Set(k int, g GPU) {
	m := &p.gpus[k]
	if m.group != nil {
		p.leave(k, m.group)
	}
	m.GPU, m.group = g, nil
	if g.Model == nil {
		return
	}
	m.group = p.join(k, g)
	m.free = g.frees(m.free)
}

// Start makes placement i of the k-th GPU busy until end (seconds; +Inf: unknown). The idle instances in its way are
// gone then.
func (p *Pool) Start(k, i int, end float64) {
	g := p.gpus[k].GPU
	g.Idle &^= g.InTheWay(i)
	g.Idle = g.Idle.Without(i)
	g.occupy(i, end)
	p.Set(k, g)
}

// Finish frees placement i of the k-th GPU. If keep, its instance stays behind, idle.
func (p *Pool) Finish(k, i int, keep bool) {
	g := p.gpus[k].GPU
	g.Layout = g.Layout.Without(i)
	if keep {
		g.Idle = g.Idle.With(i)
	}
	p.Set(k, g)
}

// Expect changes when placement i of the k-th GPU, which is busy, is expected to end (seconds; +Inf: unknown).
func (p *Pool) Expect(k, i int, end float64) {
	m := &p.gpus[k]
	if m.Ends == nil || m.Ends[i] != end {
		m.Ends = m.withEnd(i, end)
		m.free = m.frees(m.free)
	}
}

// Free is when everything that overlaps placement i of the k-th GPU is expected to have ended (seconds; 0: it is free,
// +Inf: unknown).
func (p *Pool) Free(k, i int) float64 { return p.gpus[k].free[i] }

func (p *Pool) join(k int, g GPU) *Group {
	key := standing{g.Model, g.Layout, g.Idle, g.Blocked}
	group := p.groups[key]
	if group == nil {
		table := g.Model.TableBeside(g.Blocked)
		group = &Group{Model: g.Model, Busy: table.Node(g.Layout), Idle: g.Idle, both: table.Node(g.Layout | g.Idle)}
		group.clear = ^g.Model.Overlapping(g.Model.Occupied(g.Layout) | g.Blocked)
		p.groups[key] = group
	}
	if len(group.GPUs) == 0 {
		b := p.of(g.Model)
		group.place = len(b.groups)
		b.groups = append(b.groups, group)
	}
	at, _ := slices.BinarySearch(group.GPUs, k)
	group.GPUs = slices.Insert(group.GPUs, at, k)
	return group
}

// leave takes a GPU out of its group. An empty group is kept for the next that comes along, but out of every search.
func (p *Pool) leave(k int, group *Group) {
	at, _ := slices.BinarySearch(group.GPUs, k)
	group.GPUs = slices.Delete(group.GPUs, at, at+1)
	if len(group.GPUs) == 0 {
		b := p.of(group.Model)
		last := b.groups[len(b.groups)-1]
		b.groups[group.place], last.place = last, group.place
		b.groups = b.groups[:len(b.groups)-1]
	}
}

func (p *Pool) of(model *mig.Model) *modelGroups {
	for i := range p.boards {
		if p.boards[i].board == model {
			return &p.boards[i]
		}
	}
	p.boards = append(p.boards, modelGroups{board: model})
	return &p.boards[len(p.boards)-1]
}

// has reports whether a placement of the profile is free on any GPU.
func (p *Pool) has(profile string) bool {
	for _, b := range p.boards {
		k, ok := b.board.ProfileIndex(profile)
		if ok && slices.ContainsFunc(b.groups, func(g *Group) bool { return g.Busy.Open&b.board.OfProfile(k) != 0 }) {
			return true
		}
	}
	return false
}

// By is the set of the placements of profile p (an index in the GPU model's Profiles) that are to be had by exactly
// these means.
func (g *Group) By(m Acquisition, p int) mig.Layout {
	return m.of(g.Busy.Open&g.Model.OfProfile(p), g.both.Open, g.Idle)
}

// meansOf is how placement i of profile p, which can be had, is had.
func (g *Group) meansOf(i, p int) Acquisition {
	switch {
	case g.Idle.Has(i):
		return Reuse
	case (g.both.Open & g.Model.OfProfile(p)).Has(i):
		return Carve
	}
	return Reclaim
}

// frees computes, by placement, when everything that overlaps it will have ended.
func (g GPU) frees(into []float64) []float64 {
	into = append(into[:0], make([]float64, len(g.Model.Placements))...)
	for j := range g.Layout.Indices() {
		end := math.Inf(1)
		if g.Ends != nil {
			end = g.Ends[j]
		}
		for i := range g.Model.Conflicts(j).Indices() {
			into[i] = max(into[i], end)
		}
	}
	for i := range g.Model.Overlapping(g.Blocked).Indices() {
		into[i] = math.Inf(1)
	}
	return into
}
