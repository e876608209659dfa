package place

import (
	"math"
	"slices"

	"caelum/internal/mig"
)

// GPU is the state of one GPU.
type GPU struct {
	Model *mig.Model
	// Busy are the placements that are taken: leased, pending for a job that slurmctld has started, or in use by
	// something other than Caelum.
	Busy mig.Layout
	// Blocked is the mask of the units that are taken by something that is no placement of this GPU model, or by an
	// instance that cannot be destroyed.
	Blocked uint64
	// Idle are the instances without a lease. Using one of them again costs nothing, and each may be destroyed when its
	// room is needed. Busy and Idle do not overlap, and together they are a legal layout.
	Idle mig.Layout
	// Ends has, by placement, when the busy instances are expected to end (seconds; +Inf: unknown). nil: all are
	// unknown.
	Ends []float64
	// Offerable are the placements that may be offered: those of the profiles that the site configures. Policies do not
	// use it; package offer rejects a choice that is not among them.
	Offerable mig.Layout
}

// Hold makes placement i, which must be possible, busy until end (seconds; +Inf: unknown). It removes the idle
// instances in its way. Other GPUs may share the list of ends, so it is copied.
func (g *GPU) Hold(i int, end float64) {
	g.Idle = (g.Idle &^ g.InTheWay(i)).Without(i)
	g.Busy = g.Busy.With(i)
	g.Ends = slices.Clone(g.Ends)
	g.Expect(i, end)
}

// Expect sets when busy placement i is expected to end (seconds; +Inf: unknown). It changes the list of ends in place.
func (g *GPU) Expect(i int, end float64) {
	if g.Ends == nil {
		if math.IsInf(end, 1) {
			return
		}
		g.Ends = slices.Repeat([]float64{math.Inf(1)}, len(g.Model.Placements))
	}
	g.Ends[i] = end
}

// Acquisition is a way to get a placement. Lower is cheaper.
type Acquisition int

const (
	Reuse   Acquisition = iota // there is an idle instance of the profile
	Carve                      // the units are free
	Reclaim                    // idle instances are in the way
	endOfAcquisitions
)

func (m Acquisition) String() string { return [...]string{"reuse", "carve", "reclaim"}[m] }

// AcquiredBy returns the placements of profile p (an index in the GPU model's Profiles) that can be acquired in exactly
// this way.
func (g GPU) AcquiredBy(m Acquisition, p int) mig.Layout {
	return m.of(
		g.Model.Open(g.Busy, g.Blocked)&g.Model.OfProfile(p),
		g.Model.Open(g.Busy|g.Idle, g.Blocked),
		g.Idle,
	)
}

// of returns those of the possible placements that can be acquired in exactly this way. carve are the placements that
// are open beside the idle instances too.
func (m Acquisition) of(possible, carve, idle mig.Layout) mig.Layout {
	switch m {
	case Reuse:
		return possible & idle
	case Carve:
		return possible & carve
	default:
		return possible &^ (carve | idle)
	}
}

// AcquisitionOf returns how placement i can be acquired; false if it cannot.
func (g GPU) AcquisitionOf(i int) (Acquisition, bool) {
	for m := range endOfAcquisitions {
		if g.AcquiredBy(m, g.Model.Placements[i].Profile).Has(i) {
			return m, true
		}
	}
	return 0, false
}

// InTheWay returns the idle instances that have to be destroyed before placement i can be made. These are the ones that
// overlap it, and the ones that hold other resources that it needs (instance limit, media engines), but none that can
// stay. Placement i must be possible beside the busy instances.
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
