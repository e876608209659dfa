package mig

import "math"

// budget holds the amounts of the resources that instances share, except units: first the compute slices, then the
// media engines. Copy engines are omitted, because on every GPU model in models.txt the compute slices are the stricter
// limit.
type budget [5]int

func needs(p Profile) budget {
	return budget{p.Compute, max(p.DEC, 0), max(p.ENC, 0), max(p.JPEG, 0), max(p.OFA, 0)}
}

// totals returns the resources of the whole GPU, as given by the profiles that occupy every unit. Resources whose
// amount is unknown are not limited.
func totals(grid int, profiles []Profile) budget {
	const unlimited = math.MaxInt
	t := budget{-1, -1, -1, -1, -1}
	for _, p := range profiles {
		if p.Size == grid {
			for k, n := range [...]int{p.Compute, p.DEC, p.ENC, p.JPEG, p.OFA} {
				t[k] = max(t[k], n)
			}
		}
	}
	for k := range t {
		if t[k] < 0 {
			t[k] = unlimited
		}
	}
	return t
}

func (have budget) covers(need budget) bool {
	for k := range have {
		if need[k] > have[k] {
			return false
		}
	}
	return true
}

func (have budget) less(need budget) budget {
	for k := range have {
		have[k] -= need[k]
	}
	return have
}

// Units returns a mask of the units that placement i occupies.
func (b *Model) Units(i int) uint64 { return b.units[i] }

// Occupied returns a mask of the units that the placements in l occupy.
func (b *Model) Occupied(l Layout) uint64 {
	var u uint64
	for i := range l.Indices() {
		u |= b.units[i]
	}
	return u
}

// Conflicts returns the placements that share a unit with placement i, including i itself.
func (b *Model) Conflicts(i int) Layout { return b.conflicts[i] }

// Overlapping returns the placements that occupy at least one of the units in the mask.
func (b *Model) Overlapping(units uint64) Layout { return b.touching(units) }

func (b *Model) touching(units uint64) Layout {
	var l Layout
	for i, u := range b.units {
		if u&units != 0 {
			l = l.With(i)
		}
	}
	return l
}

// all returns the set of all placements.
func (b *Model) all() Layout { return Layout(span(0, len(b.Placements))) }

// room is a layout together with the placements that are still possible alongside it and the shared resources that
// remain. To examine a layout, the beside method starts with an empty GPU and adds the layout's placements one by one.
type room struct {
	layout, open Layout
	left         budget
}

func (b *Model) empty() room { return b.prune(room{open: b.all(), left: b.total}) }

// take adds placement i to the room's layout. The placement must be open.
func (b *Model) take(r room, i int) room {
	p := b.Placements[i].Profile
	r.layout = r.layout.With(i)
	r.open &^= b.conflicts[i]
	r.left = r.left.less(b.need[p])
	if (r.layout & b.ofProfile[p]).Count() >= b.Profiles[p].Max {
		r.open &^= b.ofProfile[p]
	}
	return b.prune(r)
}

// prune removes the open placements of all profiles for which too few shared resources remain.
func (b *Model) prune(r room) room {
	for p, of := range b.ofProfile {
		if r.open&of != 0 && !r.left.covers(b.need[p]) {
			r.open &^= of
		}
	}
	return r
}

// beside returns the room for the layout l, or false if l is not a legal layout of the GPU model.
func (b *Model) beside(l Layout) (room, bool) {
	r := b.empty()
	for i := range l.Indices() {
		if !r.open.Has(i) {
			return room{}, false
		}
		r = b.take(r, i)
	}
	return r, true
}

// Legal reports whether the placements of l fit on the GPU together.
func (b *Model) Legal(l Layout) bool {
	_, ok := b.beside(l)
	return ok
}

// Open returns the placements that fit alongside l and do not use the blocked units. Each of them fits on its own, but
// they do not necessarily fit together. Blocked units belong to instances that do not match any placement of the GPU
// model or cannot be destroyed. If l is illegal, Open returns no placements.
func (b *Model) Open(l Layout, blocked uint64) Layout {
	r, _ := b.beside(l)
	if blocked != 0 {
		r.open &^= b.touching(blocked)
	}
	return r.open
}

// Fits reports whether placement i can be added to l: its units must be free, its profile must not have reached its
// instance limit, and enough compute slices and media engines must be free.
func (b *Model) Fits(l Layout, i int) bool { return b.Open(l, 0).Has(i) }
