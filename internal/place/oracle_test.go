package place

import (
	"math"
	"slices"

	"caelum/internal/mig"
)

// The oracle: a plain implementation of the rules of MIG and of the measures of a GPU, on sets of intervals. It takes
// only the profiles from the GPU model, and uses no table, pool or set of placements.

// interval is an instance: a profile on the units [from, to).
type interval struct {
	profile  int
	from, to int
}

// plainGPU is the state of a GPU.
type plainGPU struct {
	model      *mig.Model
	busy, idle []interval
	blocked    []int                // units
	until      map[interval]float64 // when the busy ones end
}

func plainly(g GPU) plainGPU {
	o := plainGPU{model: g.Model, until: map[interval]float64{}}
	for i, pl := range g.Model.Placements {
		x := interval{pl.Profile, pl.Start, pl.Start + pl.Size}
		if g.Busy.Has(i) {
			o.busy = append(o.busy, x)
			o.until[x] = math.Inf(1)
			if g.Ends != nil {
				o.until[x] = g.Ends[i]
			}
		}
		if g.Idle.Has(i) {
			o.idle = append(o.idle, x)
		}
	}
	for u := range g.Model.Grid {
		if g.Blocked>>u&1 == 1 {
			o.blocked = append(o.blocked, u)
		}
	}
	return o
}

// every returns all possible instances of a GPU model, by profile, then by start.
func every(b *mig.Model) []interval {
	var all []interval
	for p, pr := range b.Profiles {
		for _, s := range pr.Starts {
			all = append(all, interval{p, s, s + pr.Size})
		}
	}
	return all
}

func overlap(x, y interval) bool { return x.from < y.to && y.from < x.to }

// whole returns the plain profile of the whole GPU. It has the resources that instances share.
func whole(b *mig.Model) mig.Profile {
	for _, p := range b.Profiles {
		if p.Size == b.Grid && mig.Plain(p) {
			return p
		}
	}
	panic(b.Name + " has no profile of the whole GPU")
}

// legal reports whether the instances fit on a GPU together, beside its blocked units.
func (o plainGPU) legal(set []interval) bool {
	all := whole(o.model)
	left := [5]int{all.Compute, all.DEC, all.ENC, all.JPEG, all.OFA}
	for k, x := range set {
		same := 0
		for m, y := range set {
			if m != k && overlap(x, y) {
				return false
			}
			if x.profile == y.profile {
				same++
			}
		}
		for _, u := range o.blocked {
			if x.from <= u && u < x.to {
				return false
			}
		}
		p := o.model.Profiles[x.profile]
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

func with(set []interval, x interval) []interval { return append(slices.Clone(set), x) }

func (o plainGPU) fits(set []interval, x interval) bool { return o.legal(with(set, x)) }

func (o plainGPU) freeUnits(set []interval) int {
	n := o.model.Grid - len(o.blocked)
	for _, x := range set {
		n -= x.to - x.from
	}
	return n
}

// cc returns how many placements still fit, by profile.
func (o plainGPU) cc(set []interval) []int {
	n := make([]int, len(o.model.Profiles))
	for _, x := range every(o.model) {
		if o.fits(set, x) {
			n[x.profile]++
		}
	}
	return n
}

func total(n []int) int {
	sum := 0
	for _, x := range n {
		sum += x
	}
	return sum
}

// placeable returns how many instances of a profile still fit together, from unit from on. It tries all choices.
func (o plainGPU) placeable(set []interval, p, from int) int {
	most := 0
	for _, s := range o.model.Profiles[p].Starts {
		x := interval{p, s, s + o.model.Profiles[p].Size}
		if s >= from && o.fits(set, x) {
			most = max(most, 1+o.placeable(with(set, x), p, s+1))
		}
	}
	return most
}

func (o plainGPU) frag(set []interval) float64 {
	compute := whole(o.model).Compute
	for _, x := range set {
		compute -= o.model.Profiles[x.profile].Compute
	}
	sum, n := 0.0, 0.0
	for p, pr := range o.model.Profiles {
		if ideal := min(compute/pr.Compute, o.freeUnits(set)/pr.Size); ideal > 0 {
			sum, n = sum+1-float64(o.placeable(set, p, 0))/float64(ideal), n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

func (o plainGPU) lost(set []interval, weights []float64) float64 {
	sum := 0.0
	for p, pr := range o.model.Profiles {
		sum += weights[p] * float64(o.freeUnits(set)-o.placeable(set, p, 0)*pr.Size)
	}
	return sum
}

// layouts returns all legal sets of instances on an empty GPU of the GPU model.
func layouts(b *mig.Model) [][]interval {
	all := [][]interval{nil}
	for _, x := range every(b) {
		for _, set := range all {
			if (plainGPU{model: b}).fits(set, x) {
				all = append(all, with(set, x))
			}
		}
	}
	return all
}

// futures has the layouts of each GPU model, which are computed once: there are several thousand.
type futures map[*mig.Model][][]interval

// reach returns the number of maximal sets that contain this one and avoid the blocked units.
func (f futures) reach(o plainGPU, set []interval) int {
	if f[o.model] == nil {
		f[o.model] = layouts(o.model)
	}
	n := 0
	for _, l := range f[o.model] {
		missing := func(x interval) bool { return !slices.Contains(l, x) }
		if !slices.ContainsFunc(set, missing) && o.legal(l) &&
			!slices.ContainsFunc(every(o.model), func(x interval) bool { return o.fits(l, x) }) {
			n++
		}
	}
	return n
}
