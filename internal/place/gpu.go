package place

import (
	"math"
	"slices"

	"caelum/internal/mig"
)

// GPU is the state of one GPU.
type GPU struct {
	Model *mig.Model
	// Busy contains the placements that are leased, pending for a job that slurmctld has
	// started, or in use by other programs.
	Busy mig.Layout
	// Blocked is the mask of the units that are occupied by an instance that cannot be destroyed, or that matches no
	// placement of this GPU model.
	Blocked uint64
	// Idle contains the instances without a lease. An idle instance can be reused at no cost,
	// and may be destroyed when its units are needed. Busy and Idle do not overlap, and
	// together they are a legal layout.
	Idle mig.Layout
	// Ends contains, for each placement, the time at which its busy instance is expected to end, in seconds, or +Inf if
	// unknown. If Ends is nil, all end times are unknown.
	Ends []float64
	// Offerable contains the placements that may be offered, which are those of the profiles
	// that the site configures. Policies do not read Offerable. Package offer rejects a choice
	// that is not in Offerable.
	Offerable mig.Layout
}

// Hold makes placement i, which must be possible, busy until end (seconds, or +Inf if unknown).
// Hold removes the idle instances that are in the way of i. It copies Ends, because other GPU
// values may share the list.
func (g *GPU) Hold(i int, end float64) {
	g.Idle = (g.Idle &^ g.InTheWay(i)).Without(i)
	g.Busy = g.Busy.With(i)
	g.Ends = slices.Clone(g.Ends)
	g.Expect(i, end)
}

// Expect sets the time at which busy placement i is expected to end (seconds, or +Inf if unknown). It changes Ends in
// place.
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
	Reuse   Acquisition = iota // an idle instance of the profile exists at the placement
	Carve                      // the units are free
	Reclaim                    // idle instances must be destroyed first
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

// of returns the possible placements that can be acquired in exactly this way. carve contains the placements that fit
// beside the busy and the idle instances.
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

// AcquisitionOf returns the way in which placement i can be acquired, or false if it cannot be acquired.
func (g GPU) AcquisitionOf(i int) (Acquisition, bool) {
	for m := range endOfAcquisitions {
		if g.AcquiredBy(m, g.Model.Placements[i].Profile).Has(i) {
			return m, true
		}
	}
	return 0, false
}

// InTheWay returns the idle instances that have to be destroyed before placement i can be made. These are the instances
// that overlap i, and instances that hold other resources that i needs (instance limit, media engines). The result does
// not contain instances that can remain. Placement i must be possible beside the busy instances.
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
