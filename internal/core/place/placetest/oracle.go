package placetest

import (
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// The oracle is a simple implementation of the rules of MIG and of the measures of a GPU, based on sets of intervals.
// It uses only the GPU model's list of profiles and no tables, pools or sets of placements.

// Interval is an instance: a profile on the units [from, to).
type Interval struct {
	Profile  int
	From, To int
}

// PlainGPU is the state of a GPU.
type PlainGPU struct {
	Model      *mig.Model
	Busy, Idle []Interval
	Blocked    []int                // units
	Until      map[Interval]float64 // the time at which each busy instance becomes free
}

// PlainGPUOf converts the state of a GPU to the form used by the oracle.
func PlainGPUOf(g place.GPU) PlainGPU {
	o := PlainGPU{Model: g.Model, Until: map[Interval]float64{}}
	for i, pl := range g.Model.Placements {
		x := Interval{pl.Profile, pl.Start, pl.Start + pl.Size}
		if g.Busy.Has(i) {
			o.Busy = append(o.Busy, x)
			o.Until[x] = math.Inf(1)
			if g.Ends != nil {
				o.Until[x] = g.Ends[i]
			}
		}
		if g.Idle.Has(i) {
			o.Idle = append(o.Idle, x)
		}
	}
	for u := range g.Model.Grid {
		if g.Blocked>>u&1 == 1 {
			o.Blocked = append(o.Blocked, u)
		}
	}
	return o
}

// Every returns all possible instances of a GPU model, ordered by profile and then by start.
func Every(b *mig.Model) []Interval {
	var all []Interval
	for p, pr := range b.Profiles {
		for _, s := range pr.Starts {
			all = append(all, Interval{p, s, s + pr.Size})
		}
	}
	return all
}

// Overlap reports whether two instances have a unit in common.
func Overlap(x, y Interval) bool { return x.From < y.To && y.From < x.To }

// whole returns the plain profile of the whole GPU, which determines the resources that instances share.
func whole(b *mig.Model) mig.Profile {
	for _, p := range b.Profiles {
		if p.Size == b.Grid && mig.Plain(p) {
			return p
		}
	}
	panic(b.Name + " has no profile for the whole GPU")
}

// Legal reports whether the instances fit on a GPU at the same time without using its blocked units.
func (o PlainGPU) Legal(set []Interval) bool {
	all := whole(o.Model)
	left := [5]int{all.Compute, all.DEC, all.ENC, all.JPEG, all.OFA}
	if o.Model.Fractions > 0 {
		left[0] = math.MaxInt // fractions share the compute slices
	}
	for k, x := range set {
		same := 0
		for m, y := range set {
			if m != k && Overlap(x, y) {
				return false
			}
			if x.Profile == y.Profile {
				same++
			}
		}
		for _, u := range o.Blocked {
			if x.From <= u && u < x.To {
				return false
			}
		}
		p := o.Model.Profiles[x.Profile]
		if same > p.Max {
			return false
		}
		for n, need := range [5]int{p.Compute, p.DEC, p.ENC, p.JPEG, p.OFA} {
			if left[n] -= max(need, 0); left[n] < 0 &&
				(n == 0 || [5]int{0, all.DEC, all.ENC, all.JPEG, all.OFA}[n] >= 0) {
				return false
			}
		}
	}
	return true
}

// With returns a copy of the set with one more instance.
func With(set []Interval, x Interval) []Interval { return append(slices.Clone(set), x) }

// Fits reports whether an instance can be added to the set.
func (o PlainGPU) Fits(set []Interval, x Interval) bool { return o.Legal(With(set, x)) }

// FreeUnits returns the number of units that are neither blocked nor occupied by the set.
func (o PlainGPU) FreeUnits(set []Interval) int {
	n := o.Model.Grid - len(o.Blocked)
	for _, x := range set {
		n -= x.To - x.From
	}
	return n
}

// CC returns, for each profile, the number of placements that still fit.
func (o PlainGPU) CC(set []Interval) []int {
	n := make([]int, len(o.Model.Profiles))
	for _, x := range Every(o.Model) {
		if o.Fits(set, x) {
			n[x.Profile]++
		}
	}
	return n
}

// placeable returns the maximum number of additional instances of profile p that fit between a given unit (from) and
// the end of the GPU. It tries all combinations.
func (o PlainGPU) placeable(set []Interval, p, from int) int {
	most := 0
	for _, s := range o.Model.Profiles[p].Starts {
		x := Interval{p, s, s + o.Model.Profiles[p].Size}
		if s >= from && o.Fits(set, x) {
			most = max(most, 1+o.placeable(With(set, x), p, s+1))
		}
	}
	return most
}

// Frag returns the fragmentation, from 0 to 1, of a GPU whose busy instances are those in set (see [mig.LayoutInfo]).
func (o PlainGPU) Frag(set []Interval) float64 {
	compute := whole(o.Model).Compute
	if o.Model.Fractions > 0 {
		compute = math.MaxInt
	}
	for _, x := range set {
		compute -= o.Model.Profiles[x.Profile].Compute
	}
	sum, n := 0.0, 0.0
	for p, pr := range o.Model.Profiles {
		if ideal := min(compute/pr.Compute, o.FreeUnits(set)/pr.Size); ideal > 0 {
			sum, n = sum+1-float64(o.placeable(set, p, 0))/float64(ideal), n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// layouts returns all legal sets of instances on an empty GPU of the given model.
func layouts(b *mig.Model) [][]Interval {
	all := [][]Interval{nil}
	for _, x := range Every(b) {
		for _, set := range all {
			if (PlainGPU{Model: b}).Fits(set, x) {
				all = append(all, With(set, x))
			}
		}
	}
	return all
}

// Futures caches the layouts of each GPU model, because a model can have several thousand layouts.
type Futures map[*mig.Model][][]Interval

// Reach returns the number of maximal layouts that include the set and do not use the blocked units.
func (f Futures) Reach(o PlainGPU, set []Interval) int {
	if f[o.Model] == nil {
		f[o.Model] = layouts(o.Model)
	}
	n := 0
	for _, l := range f[o.Model] {
		missing := func(x Interval) bool { return !slices.Contains(l, x) }
		if !slices.ContainsFunc(set, missing) && o.Legal(l) &&
			!slices.ContainsFunc(Every(o.Model), func(x Interval) bool { return o.Fits(l, x) }) {
			n++
		}
	}
	return n
}
