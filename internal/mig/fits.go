package mig

import "math"

// budget counts what instances share besides units: compute slices, then the media engines. Copy engines are left out:
// on every GPU model of the tables they come to no more than the compute slices allow.
type budget [5]int

func needs(p Profile) budget {
	return budget{p.Compute, max(p.DEC, 0), max(p.ENC, 0), max(p.JPEG, 0), max(p.OFA, 0)}
}

// totals is what the whole GPU has: what the profile that takes every unit has. A number that it does not know binds
// nothing.
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

// Units is the mask of the units that placement i takes.
func (b *Model) Units(i int) uint64 { return b.units[i] }

// Occupied is the mask of the units that a set of placements takes.
func (b *Model) Occupied(l Layout) uint64 {
	var u uint64
	for i := range l.Indices() {
		u |= b.units[i]
	}
	return u
}

// Conflicts is the set of the placements that share a unit with placement i, itself included.
func (b *Model) Conflicts(i int) Layout { return b.conflicts[i] }

// Overlapping is the set of the placements that take any of these units.
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

// all is the set of every placement.
func (b *Model) all() Layout { return Layout(span(0, len(b.Placements))) }

// room is what a layout leaves: the placements that still fit beside it, and what is left to share out. Every question
// about a layout is answered by taking its placements out of an empty GPU model's room one by one.
type room struct {
	layout, open Layout
	left         budget
}

func (b *Model) empty() room { return b.prune(room{open: b.all(), left: b.total}) }

// take puts placement i, which must be open, into the layout.
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

// prune closes the profiles for which there is not enough left.
func (b *Model) prune(r room) room {
	for p, of := range b.ofProfile {
		if r.open&of != 0 && !r.left.covers(b.need[p]) {
			r.open &^= of
		}
	}
	return r
}

// beside is the room that l leaves; false when l is no legal layout of the GPU model.
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

// Legal reports whether the placements can stand on the GPU together.
func (b *Model) Legal(l Layout) bool {
	_, ok := b.beside(l)
	return ok
}

// Open is the set of the placements of which each (not necessarily two of them) fits beside l and avoids the blocked
// units: units taken by something that is not one of this GPU model's placements. Nothing fits beside an illegal
// layout.
func (b *Model) Open(l Layout, blocked uint64) Layout {
	r, _ := b.beside(l)
	if blocked != 0 {
		r.open &^= b.touching(blocked)
	}
	return r.open
}

// Fits reports whether placement i can be added to l: no overlap, instance limit not reached, enough compute slices and
// media engines left.
func (b *Model) Fits(l Layout, i int) bool { return b.Open(l, 0).Has(i) }
