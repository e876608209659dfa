package reconfigure

import (
	"cmp"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// draft is an unfinished plan and the state of the GPUs after its steps.
type draft struct {
	gpus    []place.GPU
	plan    Plan
	movable Movable
	moved   map[place.Spot]bool // the new spots of the instances that have already been moved
}

// move is a possible move of a busy instance.
type move struct {
	from, to place.Spot
	job      int
	gain     float64 // the decrease in the total fragmentation of both GPUs
	idle     bool    // true if the target has an idle instance of the profile
}

// better reports whether move m leads to less overall fragmentation than move o.
func (m move) better(o move) bool {
	if d := m.gain - o.gain; d > lessFrag || d < -lessFrag {
		return d > 0
	}
	if m.idle != o.idle {
		return m.idle
	}
	return cmp.Or(cmp.Compare(m.to.GPU, o.to.GPU), cmp.Compare(m.to.Placement, o.to.Placement),
		cmp.Compare(m.from.GPU, o.from.GPU), cmp.Compare(m.from.Placement, o.from.Placement)) < 0
}

// info returns the mig.LayoutInfo of GPU k for the given busy placements.
func (d *draft) info(k int, busy mig.Layout) *mig.LayoutInfo {
	g := d.gpus[k]
	return g.Model.TableBeside(g.Blocked).Info(busy)
}

func (d *draft) frag(k int, busy mig.Layout) float64 { return d.info(k, busy).Frag }

// load returns the fraction of the GPU's units that are busy or blocked.
func (d *draft) load(k int) float64 {
	g := d.gpus[k]
	return 1 - float64(d.info(k, g.Busy).Units)/float64(g.Model.Grid)
}

// lightens reports whether the load of the target GPU after the move is less than the load of the source GPU before it.
func (d *draft) lightens(m move) bool {
	b := d.gpus[m.to.GPU].Model
	return d.load(m.to.GPU)+float64(b.Placements[m.to.Placement].Size)/float64(b.Grid) < d.load(m.from.GPU)-lessFrag
}

// moves returns all moves of a single instance from GPU f to GPU t, which may be the same GPU.
func (d *draft) moves(f, t int) []move {
	var all []move
	from, to := d.gpus[f], d.gpus[t]
	before := d.frag(f, from.Busy)
	if t != f {
		before += d.frag(t, to.Busy)
	}
	for i := range from.Busy.Indices() {
		at := place.Spot{GPU: f, Placement: i}
		job, ok := d.movable(at)
		p, has := to.Model.ProfileIndex(from.Model.ProfileOf(i))
		if !ok || !has || d.moved[at] {
			continue
		}
		stays := to.Busy
		if t == f {
			stays = stays.Without(i)
		}
		for j := range (to.Model.Open(stays, to.Blocked) & to.Model.OfProfile(p)).Indices() {
			if t == f && j == i {
				continue
			}
			after := d.frag(t, stays.With(j))
			if t != f {
				after += d.frag(f, from.Busy.Without(i))
			}
			target := place.Spot{GPU: t, Placement: j}
			all = append(all, move{from: at, to: target, job: job, gain: before - after, idle: to.Idle.Has(j)})
		}
	}
	return all
}

// make adds a move to the plan.
func (d *draft) make(m move) {
	d.step(Step{Destroy, m.from, d.gpus[m.from.GPU].Model, m.job})
	d.put(m.to, m.job)
	if d.moved != nil {
		delete(d.moved, m.from)
		d.moved[m.to] = true
	}
}

func (d *draft) put(at place.Spot, job int) {
	for _, s := range serve(nil, d.gpus[at.GPU], at, job) {
		d.step(s)
	}
}

func (d *draft) step(s Step) {
	if err := s.apply(d.gpus, map[int]float64{}); err != nil {
		panic("reconfigure: a planned step is impossible: " + err.Error())
	}
	d.plan = append(d.plan, s)
}

// repack returns the layout of GPU k after all movable instances have been placed again. The second result is false if
// not all of them fit.
func (d *draft) repack(k int) (mig.Layout, bool) {
	g := d.gpus[k]
	var stays, moves mig.Layout
	for i := range g.Busy.Indices() {
		if _, ok := d.movable(place.Spot{GPU: k, Placement: i}); ok {
			moves = moves.With(i)
		} else {
			stays = stays.With(i)
		}
	}
	order := slices.Collect(moves.Indices())
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(g.Model.Placements[a].Start, g.Model.Placements[b].Start)
	})
	mock := d.info(k, stays)
	for _, i := range order {
		var best *mig.LayoutInfo
		for j := range (mock.Open & g.Model.OfProfile(g.Model.Placements[i].Profile)).Indices() {
			if n := mock.With(j); best == nil || n.CC > best.CC {
				best = n
			}
		}
		if best == nil {
			return 0, false
		}
		mock = best
	}
	return mock.Layout, true
}

// shift adds to the plan the moves that change the layout of GPU k to mock. Instances of the same profile are
// interchangeable, so instances are moved only where the sets of placements differ. All moved instances are destroyed
// before the first of them is re-created.
func (d *draft) shift(k int, mock mig.Layout) {
	g := d.gpus[k]
	type shifted struct{ from, to, job int }
	var all []shifted
	for p := range g.Model.Profiles {
		of := g.Model.OfProfile(p)
		to := slices.Collect((mock &^ g.Busy & of).Indices())
		for i := range (g.Busy &^ mock & of).Indices() {
			job, _ := d.movable(place.Spot{GPU: k, Placement: i})
			all = append(all, shifted{i, to[0], job})
			to = to[1:]
		}
	}
	for _, m := range all {
		d.step(Step{Destroy, place.Spot{GPU: k, Placement: m.from}, g.Model, m.job})
	}
	for _, m := range all {
		d.put(place.Spot{GPU: k, Placement: m.to}, m.job)
	}
}
