package place

import (
	"math"
	"slices"

	"caelum/internal/core/mig"
)

// GPU is the state of one GPU.
type GPU struct {
	Model *mig.Model
	// Busy holds three kinds of placements: leased placements, placements of pending leases, and placements whose
	// instances are used by other programs.
	Busy mig.Layout
	// Blocked is a mask of the unusable units, which belong to instances that cannot be destroyed or that do not match
	// any of the GPU model's placements.
	Blocked uint64
	// Idle holds the instances without a lease. An idle instance can be reused at no cost and may be destroyed if its
	// units are needed. Busy and Idle are disjoint and together form a legal layout.
	Idle mig.Layout
	// Ends holds, for each placement, the expected end of its busy instance in seconds, or +Inf if unknown. If it is
	// nil, all ends are unknown.
	Ends []float64
	// Offerable holds the placements of the profiles that the site has configured. Policies ignore it, but package
	// offer rejects a choice that is not in it.
	Offerable mig.Layout
	// NVLink is the number of the GPU's group. All GPUs of a node with the same number are connected to each other by
	// NVLinks. It is 0 if the GPU is connected to no other GPU or to all GPUs of the node. Policies ignore NVLink, but
	// package offer uses it to choose the GPUs for a job that needs several full GPUs.
	NVLink int
	// Node is the index of the GPU's node. Policies use it only for GPUs that may be full (nodeSlots).
	Node int
}

// Same reports whether two GPUs have the same state.
func (g GPU) Same(o GPU) bool {
	return g.Model == o.Model && g.Busy == o.Busy && g.Blocked == o.Blocked && g.Idle == o.Idle &&
		slices.Equal(g.Ends, o.Ends) && g.Offerable == o.Offerable && g.NVLink == o.NVLink && g.Node == o.Node
}

// Hold marks placement i as busy until end (seconds, or +Inf if unknown). The placement must be possible. The idle
// instances that must be destroyed for it are removed. Ends is copied first, because other GPU values may share the
// list.
func (g *GPU) Hold(i int, end float64) {
	g.Idle = (g.Idle &^ g.InTheWay(i)).Without(i)
	g.Busy = g.Busy.With(i)
	g.Ends = slices.Clone(g.Ends)
	g.Expect(i, end)
}

// Expect sets the expected end of busy placement i (seconds, or +Inf if unknown). It modifies Ends in place.
func (g *GPU) Expect(i int, end float64) {
	if g.Ends == nil {
		if math.IsInf(end, 1) {
			return
		}
		g.Ends = slices.Repeat([]float64{math.Inf(1)}, len(g.Model.Placements))
	}
	g.Ends[i] = end
}

// Acquisition is a way to acquire a placement. Lower values are cheaper.
type Acquisition int

const (
	Reuse   Acquisition = iota // there is an idle instance of the profile at the placement
	Carve                      // the units are free
	Reclaim                    // idle instances must be destroyed first
	Switch                     // the GPU's MIG mode must be switched first
	endOfAcquisitions
)

func (m Acquisition) String() string { return [...]string{"reuse", "carve", "reclaim", "switch"}[m] }

// AcquiredBy returns the placements of profile p for which m is the cheapest acquisition. p is an index into the GPU
// model's Profiles.
func (g GPU) AcquiredBy(m Acquisition, p int) mig.Layout {
	return m.of(
		g.Model.Open(g.Busy, g.Blocked)&g.Model.OfProfile(p),
		g.Model.Open(g.Busy|g.Idle, g.Blocked),
		g.Idle,
		g.Model.Full(),
	)
}

// of returns the possible placements for which m is the cheapest acquisition. carve holds the placements that fit
// alongside the busy and idle instances. full is the mig.Full profile's placement. The MIG mode of a GPU that holds an
// instance of this profile is off.
func (m Acquisition) of(possible, carve, idle, full mig.Layout) mig.Layout {
	if m == Reuse {
		return possible & idle
	}
	possible &^= idle
	switched := possible & full
	if idle&full != 0 {
		switched = possible
	}
	switch m {
	case Carve:
		return possible & carve &^ switched
	case Reclaim:
		return possible &^ (carve | switched)
	default:
		return switched
	}
}

// AcquisitionOf returns the cheapest way to acquire placement i, or false if this placement is impossible.
func (g GPU) AcquisitionOf(i int) (Acquisition, bool) {
	for m := range endOfAcquisitions {
		if g.AcquiredBy(m, g.Model.Placements[i].Profile).Has(i) {
			return m, true
		}
	}
	return 0, false
}

// InTheWay returns the idle instances that must be destroyed before placement i can be carved. These are the instances
// that overlap i, and instances that use other resources that i needs (the instance limit, media engines), but not
// instances that can remain. Placement i must be possible alongside the busy instances.
func (g GPU) InTheWay(i int) mig.Layout {
	if g.Idle.Has(i) {
		return 0
	}
	stay := mig.Layout(0)
	for j := range g.Idle.Indices() {
		if g.Model.Fits(g.Busy|stay.With(j), i) {
			stay = stay.With(j)
		}
	}
	return g.Idle &^ stay
}
