package mig

import (
	"slices"
	"sync"
)

// Table holds, for every layout of a GPU model, what policies ask about it again and again, as nodes of a graph: an
// edge leads from a layout to the one with a placement more. Making it takes about a millisecond for an A100 and some
// twenty for the largest GPU model; it is immutable then.
type Table struct {
	Model   *Model
	Blocked uint64 // units that no layout of the table takes

	nodes []Node
}

// Node is a layout of a GPU model and what can be said of it.
type Node struct {
	Layout Layout
	Open   Layout // the placements that fit beside it
	Units  int    // free units: neither taken nor blocked
	// Compute is the compute slices that are left.
	Compute int
	// Reach is the number of maximal layouts that contain it (MIGPro's future configuration reachability).
	Reach int
	// CC is the number of open placements (GRMU's configuration capability).
	CC int
	// Frag is FragAware's fragmentation: the mean, over the profiles with an ideal above 0, of 1 - placeable/ideal;
	// from 0 to 1, and 0 where there is no such profile (arXiv 2512.16099).
	Frag float64

	table     *Table
	placeable []int8  // by profile
	next      []int32 // by placement, the index of the node with it; -1: it is not open
}

// Table is the GPU model's. It is made at first use, once.
func (b *Model) Table() *Table { return b.table() }

// TableBeside is the table of the layouts that avoid the blocked units; Reach counts the ways of filling the rest. It
// is kept: there are few sets of blocked units on a node.
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
	t.nodes = make([]Node, len(layouts))
	next := make([]int32, len(layouts)*len(b.Placements))
	placeable := make([]int8, len(layouts)*len(b.Profiles))
	// A successor has a larger number than what it follows.
	for k := len(layouts) - 1; k >= 0; k-- {
		l := layouts[k]
		r, _ := b.beside(l)
		n := &t.nodes[k]
		*n = Node{Layout: l, Open: r.open &^ hit, Compute: r.left[0], Reach: Containing(maximal, l), table: t}
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
			n.placeable[p] = max(n.placeable[p], 1+t.nodes[j].placeable[p])
		}
		n.Frag = n.frag()
	}
	return t
}

// Node finds a layout; nil for one that is illegal or takes blocked units.
func (t *Table) Node(l Layout) *Node {
	i, ok := slices.BinarySearchFunc(t.nodes, l, func(n Node, l Layout) int {
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
	return &t.nodes[i]
}

// Nodes lists all layouts, ascending. The caller must not change them.
func (t *Table) Nodes() []Node { return t.nodes }

// Table is the one that the node is of.
func (n *Node) Table() *Table { return n.table }

// With is the node with placement i added, which must be open.
func (n *Node) With(i int) *Node { return &n.table.nodes[n.next[i]] }

// Placeable is how many instances of profile p (an index in Profiles) still fit together.
func (n *Node) Placeable(p int) int { return int(n.placeable[p]) }

// Ideal is how many would fit if only free compute slices and units counted, not where they are (FragAware).
func (n *Node) Ideal(p int) int {
	pr := n.table.Model.Profiles[p]
	return min(n.Compute/pr.Compute, n.Units/pr.Size)
}

func (n *Node) frag() float64 {
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

// Lost is the sum, over the profiles, of weight times the free units that no instances of it can use: what
// fragmentation gradient descent keeps from growing. Weights are by profile.
func (n *Node) Lost(weights []float64) float64 {
	sum := 0.0
	for p, pr := range n.table.Model.Profiles {
		sum += weights[p] * float64(n.Units-n.Placeable(p)*pr.Size)
	}
	return sum
}

// WeightedCC is GRMU's ECC: the number of open placements of each profile times its weight.
func (n *Node) WeightedCC(weights []float64) float64 {
	sum := 0.0
	for p, of := range n.table.Model.ofProfile {
		sum += weights[p] * float64((n.Open & of).Count())
	}
	return sum
}
