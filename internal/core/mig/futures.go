package mig

import "slices"

// futures holds all layouts of a GPU model and all maximal layouts, both in ascending order. Each GPU model computes
// its lists on first use. All GPU models in models.txt together, with all variants, have about 20,000 layouts, which
// take 2 ms to compute.
type futures struct{ layouts, maximal []Layout }

// enumerate computes a GPU model's lists. Because it adds placements in ascending order, it visits each layout only
// once.
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

// Layouts returns every legal layout in ascending order, including the empty layout. The caller must not change the
// list.
func (b *Model) Layouts() []Layout { return b.futures().layouts }

// Maximal returns the layouts to which no further instance can be added, in ascending order. The caller must not change
// the list.
func (b *Model) Maximal() []Layout { return b.futures().maximal }

// ReachBeside returns the number of maximal layouts that include l on a GPU with blocked units, which is the number of
// ways to fill the units that are neither blocked nor occupied by l. MIGPro calls this the future configuration
// reachability. It is 0 for an illegal layout.
func (b *Model) ReachBeside(l Layout, blocked uint64) int {
	return containing(b.MaximalBeside(blocked), l)
}

// MaximalBeside returns the maximal layouts of a GPU with blocked units: none of their placements uses a blocked unit,
// and no further instance fits on the remaining units. The caller must not change the list.
func (b *Model) MaximalBeside(blocked uint64) []Layout {
	if blocked == 0 {
		return b.Maximal()
	}
	// Every layout that does not use the blocked units is part of a maximal layout of the GPU model.
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

// containing returns the number of layouts in set that include l, which is the reach of l within set.
func containing(set []Layout, l Layout) int {
	n := 0
	for _, m := range set {
		if m&l == l {
			n++
		}
	}
	return n
}
