package place

import "caelum/internal/mig"

// GPU is the state of one GPU.
type GPU struct {
	Model  *mig.Model
	Layout mig.Layout // busy: leased, pending, or in use by something other than Caelum

	// Blocked is the mask of the units that are taken by something that is no placement of this GPU model.
	Blocked uint64

	// Idle are the instances without a lease. Using one of them again costs nothing, and each may be destroyed when its
	// room is needed. Layout and Idle do not overlap, and together they are a legal layout.
	Idle mig.Layout

	// Ends has, by placement, when the busy instances are expected to end (seconds; +Inf: unknown). nil: all are
	// unknown.
	Ends []float64
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

// By returns the placements of profile p (an index in the GPU model's Profiles) that can be acquired in exactly this
// way.
func (g GPU) By(m Acquisition, p int) mig.Layout {
	return m.of(
		g.Model.Open(g.Layout, g.Blocked)&g.Model.OfProfile(p),
		g.Model.Open(g.Layout|g.Idle, g.Blocked),
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
		if g.By(m, g.Model.Placements[i].Profile).Has(i) {
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
		if g.Model.Fits(g.Layout|stay.With(j), i) {
			stay = stay.With(j)
		}
	}
	return g.Idle &^ stay
}
