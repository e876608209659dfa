package place

import (
	"math"
	"slices"

	"caelum/internal/core/mig"
)

// Pool is a list of GPUs, which may be of different models. GPUs with the same contents form a group. A large cluster
// has thousands of GPUs but only hundreds of layouts, so policies compute each value that depends only on the layout
// once per group. A Pool is not safe for concurrent use.
type Pool struct {
	gpus   []member
	groups map[contents]*Group
	models []modelGroups
	alike  Weights // equal weights, for a Situation whose Weights is nil
	nodes  nodes
	// log lists the indices of the GPUs that have changed since the log was last cleared. forgotten is the number of
	// entries that have been cleared from it.
	log       []int
	forgotten uint64
}

// Spot is a placement on one of the GPUs of a pool.
type Spot struct {
	GPU       int // the index in the pool
	Placement int // the index into the Placements of that GPU's model
}

// contents holds the properties that all GPUs in a group have in common.
type contents struct {
	model   *mig.Model
	layout  mig.Layout
	idle    mig.Layout
	blocked uint64
}

type modelGroups struct {
	model  *mig.Model
	groups []*Group
	open   [][]*Group // for each profile, the groups on which an instance fits
}

// member is the state of one GPU of the pool.
type member struct {
	GPU
	group *Group
	// free holds, for each placement, the time, in seconds, at which the jobs on all instances that overlap it will
	// have ended. The time is 0 if no instance overlaps the placement, and +Inf if an end is unknown. The comments on
	// lifetime call this time F.
	free []float64
}

// Group is a set of GPUs with the same contents.
type Group struct {
	Model *mig.Model
	Busy  *mig.LayoutInfo // the busy placements
	Idle  mig.Layout
	GPUs  []int // the indices in the pool, ascending

	both  *mig.LayoutInfo // the busy and idle placements
	clear mig.Layout      // the placements that share no unit with busy placements or blocked units
	index int             // the index among the GPU model's groups
	// at holds, for each profile, the group's index in modelGroups.open, and lifetime holds the group's candidates for
	// Lifetime. lifetime[p] is nil until the first search for profile p.
	at       []int
	lifetime [][]bounded
}

// NewPool returns a pool of GPUs. GPUs whose Model is nil do not belong to any group and do not accept instances.
func NewPool(gpus []GPU) *Pool {
	p := &Pool{groups: map[contents]*Group{}, gpus: make([]member, len(gpus))}
	for k, g := range gpus {
		p.Set(k, g)
	}
	return p
}

// Len returns the number of GPUs.
func (p *Pool) Len() int { return len(p.gpus) }

// GPU returns the state of the k-th GPU.
func (p *Pool) GPU(k int) GPU { return p.gpus[k].GPU }

// Info returns the mig.LayoutInfo for the busy placements of the k-th GPU, or nil for a GPU whose Model is nil.
func (p *Pool) Info(k int) *mig.LayoutInfo {
	if p.gpus[k].group == nil {
		return nil
	}
	return p.gpus[k].group.Busy
}

// Set replaces the state of the k-th GPU.
func (p *Pool) Set(k int, g GPU) {
	m := &p.gpus[k]
	p.changed(k, &m.GPU, &g)
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

// Start marks placement i of the k-th GPU as busy until end (seconds, or +Inf if unknown). It removes the idle
// instances that must be destroyed for this placement.
func (p *Pool) Start(k, i int, end float64) {
	g := p.gpus[k].GPU
	g.Hold(i, end)
	p.Set(k, g)
}

// Finish marks placement i of the k-th GPU as free. If keep is true, the instance remains as an idle instance.
func (p *Pool) Finish(k, i int, keep bool) {
	g := p.gpus[k].GPU
	g.Busy = g.Busy.Without(i)
	if keep {
		g.Idle = g.Idle.With(i)
	}
	p.Set(k, g)
}

// Expect changes the expected end of busy placement i on the k-th GPU (seconds, or +Inf if unknown).
func (p *Pool) Expect(k, i int, end float64) {
	m := &p.gpus[k]
	if m.Ends == nil || m.Ends[i] != end {
		m.Ends = slices.Clone(m.Ends)
		m.GPU.Expect(i, end)
		m.free = m.frees(m.free)
		p.changed(k, &m.GPU, &m.GPU)
	}
}

// changed records that the state of the k-th GPU has changed.
func (p *Pool) changed(k int, old, g *GPU) {
	p.nodes.change(old, g)
	if len(p.log) == 4*len(p.gpus) {
		p.forgotten += uint64(len(p.log))
		p.log = p.log[:0]
	}
	p.log = append(p.log, k)
}

// Changes returns the number of changes to the pool so far.
func (p *Pool) Changes() uint64 { return p.forgotten + uint64(len(p.log)) }

// ChangedSince calls visit for each GPU that has changed since Changes returned the given number, and possibly for
// other GPUs. visit may be called several times for a GPU.
func (p *Pool) ChangedSince(before uint64, visit func(k int)) {
	if before < p.forgotten {
		for k := range p.gpus {
			visit(k)
		}
		return
	}
	for _, k := range p.log[before-p.forgotten:] {
		visit(k)
	}
}

// FreeAt returns the time, in seconds, at which the jobs on all instances that overlap placement i of the k-th GPU are
// expected to have ended. The result is 0 if the placement is free, and +Inf if the time is unknown.
func (p *Pool) FreeAt(k, i int) float64 { return p.gpus[k].free[i] }

func (p *Pool) join(k int, g GPU) *Group {
	key := contents{g.Model, g.Busy, g.Idle, g.Blocked}
	group := p.groups[key]
	if group == nil {
		table := g.Model.TableBeside(g.Blocked)
		group = &Group{Model: g.Model, Busy: table.Info(g.Busy), Idle: g.Idle, both: table.Info(g.Busy | g.Idle)}
		group.at, group.lifetime = make([]int, len(g.Model.Profiles)), make([][]bounded, len(g.Model.Profiles))
		group.clear = ^g.Model.Overlapping(g.Model.Occupied(g.Busy) | g.Blocked)
		p.groups[key] = group
	}
	if len(group.GPUs) == 0 {
		b := p.of(g.Model)
		b.add(group)
	}
	at, _ := slices.BinarySearch(group.GPUs, k)
	group.GPUs = slices.Insert(group.GPUs, at, k)
	return group
}

// leave removes a GPU from its group. An empty group remains in the pool for later GPUs, but searches skip empty
// groups.
func (p *Pool) leave(k int, group *Group) {
	at, _ := slices.BinarySearch(group.GPUs, k)
	group.GPUs = slices.Delete(group.GPUs, at, at+1)
	if len(group.GPUs) == 0 {
		p.of(group.Model).remove(group)
	}
}

// add adds a group that has received its first GPU.
func (b *modelGroups) add(g *Group) {
	g.index = len(b.groups)
	b.groups = append(b.groups, g)
	for p := range b.open {
		if g.Busy.Open&b.model.OfProfile(p) != 0 {
			g.at[p] = len(b.open[p])
			b.open[p] = append(b.open[p], g)
		}
	}
}

// remove removes a group that has lost its last GPU.
func (b *modelGroups) remove(g *Group) {
	last := b.groups[len(b.groups)-1]
	b.groups[g.index], last.index = last, g.index
	b.groups = b.groups[:len(b.groups)-1]
	for p, open := range b.open {
		if g.Busy.Open&b.model.OfProfile(p) != 0 {
			last := open[len(open)-1]
			open[g.at[p]], last.at[p] = last, g.at[p]
			b.open[p] = open[:len(open)-1]
		}
	}
}

func (p *Pool) of(model *mig.Model) *modelGroups {
	for i := range p.models {
		if p.models[i].model == model {
			return &p.models[i]
		}
	}
	p.models = append(p.models, modelGroups{model: model, open: make([][]*Group, len(model.Profiles))})
	return &p.models[len(p.models)-1]
}

// openOn calls visit for each group on which an instance of the profile fits. p is the index of the profile in the
// Profiles of the group's model.
func (p *Pool) openOn(profile string, visit func(p int, g *Group)) {
	for _, b := range p.models {
		if k, ok := b.model.ProfileIndex(profile); ok {
			for _, g := range b.open[k] {
				visit(k, g)
			}
		}
	}
}

// AcquiredBy returns the placements of profile p for which m is the cheapest acquisition. p is an index into the GPU
// model's Profiles.
func (g *Group) AcquiredBy(m Acquisition, p int) mig.Layout {
	return m.of(g.Busy.Open&g.Model.OfProfile(p), g.both.Open, g.Idle, g.Model.Full())
}

// frees computes a member's free field, reusing the memory of into.
func (g GPU) frees(into []float64) []float64 {
	into = append(into[:0], make([]float64, len(g.Model.Placements))...)
	for j := range g.Busy.Indices() {
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
