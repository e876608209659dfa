package place

import "caelum/internal/mig"

// GPU is what stands on one GPU.
type GPU struct {
	Model  *mig.Model
	Layout mig.Layout // busy: leased, promised, or not ours to touch

	// Blocked is the mask of the units taken by what is no placement of this GPU model.
	Blocked uint64

	// Idle instances hold no lease: to use one again costs nothing, and each may be destroyed when its room is wanted.
	// They stand beside Layout, and together they are a legal layout.
	Idle mig.Layout

	// Ends are, by placement, when the busy instances are expected to end (seconds; +Inf: unknown). nil: all unknown.
	Ends []float64
}

// Acquisition is how a placement is had. Lower is cheaper.
type Acquisition int

const (
	Reuse   Acquisition = iota // an idle instance of the profile stands there
	Carve                      // its units are free
	Reclaim                    // idle instances are in the way
	endOfAcquisitions
)

func (m Acquisition) String() string { return [...]string{"reuse", "carve", "reclaim"}[m] }

// By is the set of the placements of profile p (an index in the GPU model's Profiles) that are to be had by exactly
// these means.
func (g GPU) By(m Acquisition, p int) mig.Layout {
	return m.of(
		g.Model.Open(g.Layout, g.Blocked)&g.Model.OfProfile(p),
		g.Model.Open(g.Layout|g.Idle, g.Blocked),
		g.Idle,
	)
}

// of are those of the possible placements that are to be had by exactly these means, where carve are open beside the
// idle instances too.
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

// AcquisitionOf is how placement i is had; false when it is not to be had.
func (g GPU) AcquisitionOf(i int) (Acquisition, bool) {
	for m := range endOfAcquisitions {
		if g.By(m, g.Model.Placements[i].Profile).Has(i) {
			return m, true
		}
	}
	return 0, false
}

// InTheWay is the set of the idle instances to destroy before placement i can be made: those that overlap it, and those
// that hold what it needs besides units (instance limit, media engines), but none that can stay. Placement i must be to
// be had.
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
