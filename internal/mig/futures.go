package mig

import "slices"

// futures are all layouts of a GPU model, each list ascending. They are made at first use: for every GPU model of
// the tables together, with all variants, about 20,000 layouts in 2 ms.
type futures struct{ layouts, maximal []Layout }

// enumerate visits each layout once, by adding placements in ascending order only.
func (b *Model) enumerate() futures {
	var f futures
	var visit func(r room, from Layout)
	visit = func(r room, from Layout) {
		f.layouts = append(f.layouts, r.layout)
		if r.open == 0 {
			f.maximal = append(f.maximal, r.layout)
		}
		for i := range (r.open & from).Indices() {
			visit(b.take(r, i), ^Layout(0)<<i)
		}
	}
	visit(b.empty(), ^Layout(0))
	slices.Sort(f.layouts)
	slices.Sort(f.maximal)
	return f
}

// Layouts lists every legal layout, the empty one included, ascending. The caller must not change the list.
func (b *Model) Layouts() []Layout { return b.futures().layouts }

// Maximal lists the layouts beside which nothing more fits, ascending. The caller must not change the list.
func (b *Model) Maximal() []Layout { return b.futures().maximal }

// Reach counts the maximal layouts that contain l: how many ways of filling the GPU remain (MIGPro's future
// configuration reachability, over the legal set). 0 for an illegal layout.
func (b *Model) Reach(l Layout) int { return Containing(b.Maximal(), l) }

// ReachBeside is Reach on a GPU of which some units are blocked: the ways of filling the rest.
func (b *Model) ReachBeside(l Layout, blocked uint64) int {
	return Containing(b.MaximalBeside(blocked), l)
}

// MaximalBeside lists the layouts that avoid the blocked units and beside which nothing more fits that does. The caller
// must not change the list.
func (b *Model) MaximalBeside(blocked uint64) []Layout {
	if blocked == 0 {
		return b.Maximal()
	}
	// Whatever can stand beside the blocked units is part of a maximal layout of the whole GPU model.
	hit := b.touching(blocked)
	var rest []Layout
	for _, m := range b.Maximal() {
		if m &^= hit; b.Open(m, blocked) == 0 {
			rest = append(rest, m)
		}
	}
	slices.Sort(rest)
	return slices.Compact(rest)
}

// CC is the number of placements still open beside l, over all profiles (GRMU's configuration capability).
func (b *Model) CC(l Layout) int { return b.Open(l, 0).Count() }

// Containing counts the layouts of a set that contain l: reach among the futures that are given.
func Containing(set []Layout, l Layout) int {
	n := 0
	for _, m := range set {
		if m&l == l {
			n++
		}
	}
	return n
}
