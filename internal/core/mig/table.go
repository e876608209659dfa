package mig

import (
	"slices"
	"sync"
)

// Table holds the values that policies need repeatedly, for every layout of a GPU model. The layouts form a graph, in
// which edges lead from each layout to the layouts with one more placement. Computing a table takes about a millisecond
// for an A100 and about twenty milliseconds for the largest GPU model. A table never changes.
type Table struct {
	Model   *Model
	Blocked uint64 // units that are not occupied by any layout in the table

	infos []LayoutInfo
}

// LayoutInfo is a layout of a GPU model, together with the values that depend on it.
type LayoutInfo struct {
	Layout Layout
	Open   Layout // the placements that fit alongside the layout
	Units  int    // the units that are neither occupied nor blocked
	// Compute is the number of free compute slices.
	Compute int
	// Reach is the number of maximal layouts that include this one (MIGPro's future configuration reachability).
	Reach int
	// CC is the number of open placements (GRMU's configuration capability).
	CC int
	// Frag is FragAware's measure of fragmentation (arXiv 2512.16099), from 0 to 1. It is the mean of 1 -
	// placeable/ideal over the profiles whose ideal is above 0, or 0 if no ideal is above 0.
	Frag float64

	table     *Table
	placeable []int8  // by profile
	next      []int32 // for each placement, the index of the layout with the placement added, or -1 if it is not open
}

// Table returns the GPU model's table. The first call computes and caches it.
func (b *Model) Table() *Table { return b.table() }

// TableBeside returns the table of the layouts that do not use the blocked units. In this table, Reach is the number of
// ways to fill the remaining units. The model caches all tables, because a host has only a few different sets of
// blocked units.
func (b *Model) TableBeside(blocked uint64) *Table {
	if blocked &= span(0, b.Grid); blocked == 0 {
		return b.Table()
	}
	made, _ := b.tables.LoadOrStore(blocked, sync.OnceValue(func() *Table { return newTable(b, blocked) }))
	return made.(func() *Table)()
}

func newTable(b *Model, blocked uint64) *Table {
	t := &Table{Model: b, Blocked: blocked}
	var layouts []Layout
	hit := b.touching(blocked)
	for _, l := range b.Layouts() {
		if l&hit == 0 {
			layouts = append(layouts, l)
		}
	}
	maximal := b.MaximalBeside(blocked)
	t.infos = make([]LayoutInfo, len(layouts))
	next := make([]int32, len(layouts)*len(b.Placements))
	placeable := make([]int8, len(layouts)*len(b.Profiles))
	// Adding a placement to a layout yields a layout with a larger index.
	for k := len(layouts) - 1; k >= 0; k-- {
		l := layouts[k]
		r, _ := b.beside(l)
		n := &t.infos[k]
		*n = LayoutInfo{Layout: l, Open: r.open &^ hit, Compute: r.left[0], Reach: containing(maximal, l), table: t}
		n.CC = n.Open.Count()
		n.Units = Layout(span(0, b.Grid) &^ (blocked | b.Occupied(l))).Count()
		n.next, next = next[:len(b.Placements):len(b.Placements)], next[len(b.Placements):]
		n.placeable, placeable = placeable[:len(b.Profiles):len(b.Profiles)], placeable[len(b.Profiles):]
		for i := range n.next {
			n.next[i] = -1
		}
		for i := range n.Open.Indices() {
			j, _ := slices.BinarySearch(layouts, l.With(i))
			n.next[i] = int32(j)
			p := b.Placements[i].Profile
			n.placeable[p] = max(n.placeable[p], 1+t.infos[j].placeable[p])
		}
		n.Frag = n.frag()
	}
	return t
}

// Info returns the information about a layout, or nil if the layout is illegal or uses blocked units.
func (t *Table) Info(l Layout) *LayoutInfo {
	i, ok := slices.BinarySearchFunc(t.infos, l, func(n LayoutInfo, l Layout) int {
		switch {
		case n.Layout < l:
			return -1
		case n.Layout > l:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &t.infos[i]
}

// Infos returns the information about all layouts in ascending order. The caller must not modify them.
func (t *Table) Infos() []LayoutInfo { return t.infos }

// Table returns the table to which n belongs.
func (n *LayoutInfo) Table() *Table { return n.table }

// With returns the information about the layout with placement i added. The placement must be open.
func (n *LayoutInfo) With(i int) *LayoutInfo { return &n.table.infos[n.next[i]] }

// Placeable returns the number of additional instances of profile p (an index into Profiles) that fit.
func (n *LayoutInfo) Placeable(p int) int { return int(n.placeable[p]) }

// Ideal returns the number of instances of profile p for which enough compute slices and units are free, regardless of
// where these units are (FragAware).
func (n *LayoutInfo) Ideal(p int) int {
	pr := n.table.Model.Profiles[p]
	return min(n.Compute/pr.Compute, n.Units/pr.Size)
}

func (n *LayoutInfo) frag() float64 {
	sum, count := 0.0, 0
	for p := range n.table.Model.Profiles {
		if ideal := n.Ideal(p); ideal > 0 {
			sum += 1 - float64(n.Placeable(p))/float64(ideal)
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return sum / float64(count)
}

// WeightedCC returns the number of open placements, each weighted by its profile (GRMU's ECC).
func (n *LayoutInfo) WeightedCC(weights []float64) float64 {
	sum := 0.0
	for p, of := range n.table.Model.ofProfile {
		sum += weights[p] * float64((n.Open & of).Count())
	}
	return sum
}
