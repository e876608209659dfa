package place_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// This file has a second implementation of each policy, which uses the oracle's sets of intervals.

// acquisition returns the cost of acquiring an instance: 0 to reuse an idle instance, 1 to carve, 2 to destroy idle
// instances before carving, 3 to switch the MIG mode, or -1 if the instance does not fit.
func acquisition(o placetest.PlainGPU, x placetest.Interval) int {
	switch {
	case !o.Fits(o.Busy, x):
		return -1
	case slices.Contains(o.Idle, x):
		return 0
	case isFull(o, x) || slices.ContainsFunc(o.Idle, func(y placetest.Interval) bool { return isFull(o, y) }):
		return 3
	case o.Fits(slices.Concat(o.Busy, o.Idle), x):
		return 1
	}
	return 2
}

func isFull(o placetest.PlainGPU, x placetest.Interval) bool {
	return o.Model.Profiles[x.Profile].Name == mig.Full
}

// spot is a candidate. Candidates are compared by the numbers in cost, from first to last. Lower numbers are better.
type spot struct {
	gpu  int
	at   placetest.Interval
	cost []float64
}

// question is the input of a definition.
type question struct {
	gpus    []placetest.PlainGPU
	profile string
	now, d  float64
	weights map[string]float64
	futures placetest.Futures
}

// by sorts the admitted candidates by cost. Only candidates with the lowest acquisition cost remain.
func (q question) by(
	admitted func(k int, x placetest.Interval) bool,
	costs func(o placetest.PlainGPU, k int, x placetest.Interval) []float64,
) []spot {
	for kind := range 4 {
		var found []spot
		for k, o := range q.gpus {
			for _, x := range placetest.Every(o.Model) {
				if o.Model.Profiles[x.Profile].Name == q.profile && acquisition(o, x) == kind && admitted(k, x) {
					found = append(found, spot{k, x, costs(o, k, x)})
				}
			}
		}
		if found != nil {
			slices.SortStableFunc(found, func(a, b spot) int { return slices.Compare(a.cost, b.cost) })
			return found
		}
	}
	return nil
}

// all returns the candidates in the order of their costs, regardless of their acquisition. Candidates for which a MIG
// mode must be switched remain only if there are no other candidates.
func (q question) all(costs func(o placetest.PlainGPU, k int, x placetest.Interval) []float64) []spot {
	var found, switched []spot
	for k, o := range q.gpus {
		for _, x := range placetest.Every(o.Model) {
			if o.Model.Profiles[x.Profile].Name != q.profile {
				continue
			}
			switch s := (spot{k, x, costs(o, k, x)}); acquisition(o, x) {
			case 0, 1, 2:
				found = append(found, s)
			case 3:
				switched = append(switched, s)
			}
		}
	}
	if found == nil {
		found = switched
	}
	slices.SortStableFunc(found, func(a, b spot) int { return slices.Compare(a.cost, b.cost) })
	return found
}

func anywhere(int, placetest.Interval) bool { return true }

// shares returns the weights of a GPU model's profiles. A profile's weight is its share of all requests.
func (q question) shares(b *mig.Model) []float64 {
	sum := 0.0
	for _, p := range b.Profiles {
		sum += q.weights[p.Name]
	}
	var w []float64
	for _, p := range b.Profiles {
		if sum == 0 {
			w = append(w, 1/float64(len(b.Profiles)))
		} else {
			w = append(w, q.weights[p.Name]/sum)
		}
	}
	return w
}

// definitions maps each policy to the function that sorts the candidates. Each function sorts candidates of equal
// cost by GPU and then by start.
var definitions = map[string]func(q question) []spot{
	"first-fit": func(q question) []spot {
		return q.by(anywhere, func(placetest.PlainGPU, int, placetest.Interval) []float64 { return nil })
	},
	"best-fit": func(q question) []spot {
		return q.by(anywhere, func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			after := placetest.With(o.Busy, x)
			return []float64{float64(o.FreeUnits(after)), -float64(total(o.CC(after)))}
		})
	},
	"driver": func(q question) []spot {
		return q.by(anywhere, func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			return []float64{float64(k), -float64(total(o.CC(placetest.With(o.Busy, x))))}
		})
	},
	"reach": func(q question) []spot {
		return q.by(anywhere, func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			after := placetest.With(o.Busy, x)
			share := float64(q.futures.Reach(o, after)) / float64(q.futures.Reach(o, o.Busy))
			return []float64{-share, float64(total(o.CC(o.Busy)) - total(o.CC(after)))}
		})
	},
	"mcc": func(q question) []spot {
		return q.by(anywhere, func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			return []float64{-float64(total(o.CC(placetest.With(o.Busy, x))))}
		})
	},
	"mecc": func(q question) []spot {
		return q.by(anywhere, func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			sum := 0.0
			for p, n := range o.CC(placetest.With(o.Busy, x)) {
				sum -= q.shares(o.Model)[p] * float64(n)
			}
			return []float64{sum}
		})
	},
	"fragaware": func(q question) []spot {
		return q.all(func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			loaded := 0.0
			if taken := o.Model.Grid - o.FreeUnits(o.Busy); float64(taken) >= 0.4*float64(o.Model.Grid) {
				loaded = 1
			}
			return []float64{loaded, math.Round(o.Frag(placetest.With(o.Busy, x)) * 1e9), float64(acquisition(o, x))}
		})
	},
	"grmu": func(q question) []spot {
		isWhole := func(k int, x placetest.Interval) bool { return x.To-x.From == q.gpus[k].Model.Grid }
		heavy, light := 0, 0
		for k, o := range q.gpus {
			if len(o.Busy) > 0 && isWhole(k, o.Busy[0]) {
				heavy++
			} else if len(o.Busy) > 0 {
				light++
			}
		}
		most := max(1, len(q.gpus)*3/10)
		asDriver := func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			return []float64{float64(k), -float64(total(o.CC(placetest.With(o.Busy, x))))}
		}
		inUse := func(k int, x placetest.Interval) bool { return len(q.gpus[k].Busy) > 0 }
		if found := q.by(inUse, asDriver); found != nil {
			return found
		}
		return q.by(func(k int, x placetest.Interval) bool {
			if isWhole(k, x) {
				return len(q.gpus[k].Busy) == 0 && heavy < most
			}
			return len(q.gpus[k].Busy) == 0 && light < max(1, len(q.gpus)-most)
		}, asDriver)
	},
	"lifetime": func(q question) []spot {
		return q.all(func(o placetest.PlainGPU, k int, x placetest.Interval) []float64 {
			sum := 0.0
			for _, slot := range placetest.Every(o.Model) {
				if !placetest.Overlap(slot, x) {
					continue
				}
				free := q.now // the slot's time F
				for _, y := range o.Busy {
					if placetest.Overlap(slot, y) {
						free = max(free, o.Until[y])
					}
				}
				for _, u := range o.Blocked {
					if slot.From <= u && u < slot.To {
						free = math.Inf(1)
					}
				}
				sum += float64(slot.To-slot.From) * max(0, q.now+q.d-free)
			}
			return []float64{sum, float64(acquisition(o, x)), -float64(q.futures.Reach(o, placetest.With(o.Busy, x)))}
		})
	},
}

// rounded lists the policies whose costs are sums of fractions. Equal costs may differ by rounding errors, which
// depend on the order of summation.
var rounded = []string{"mecc"}

func TestPoliciesAgainstOracle(t *testing.T) {
	known := placetest.Futures{}
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		some := gpus[rapid.IntRange(0, len(gpus)-1).Draw(t, "profile of")].Model
		q := question{now: 1000, d: float64(rapid.IntRange(0, 4).Draw(t, "duration") * 300), futures: known,
			profile: some.Profiles[rapid.IntRange(0, len(some.Profiles)-1).Draw(t, "profile")].Name}
		if rapid.Bool().Draw(t, "history") {
			q.weights = map[string]float64{}
			for _, p := range some.Profiles {
				q.weights[p.Name] = float64(rapid.IntRange(0, 3).Draw(t, p.Name))
			}
		}
		for _, g := range gpus {
			q.gpus = append(q.gpus, placetest.PlainGPUOf(g))
		}
		s := &place.Situation{Pool: place.NewPool(gpus), Now: q.now, Weights: place.NewWeights(q.weights)}
		for _, name := range place.Names() {
			define, ok := definitions[name]
			if !ok {
				t.Fatalf("no definition of %s", name)
			}
			policy, err := place.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			got := policy.Choose(s, place.Request{Profile: q.profile, Duration: q.d})
			want := define(q)
			if (got.Verdict == place.Here) != (len(want) > 0) {
				t.Fatalf("%s: %v; the definition has %d candidates", name, got, len(want))
			}
			if len(want) == 0 {
				continue
			}
			pl := gpus[got.GPU].Model.Placements[got.Placement]
			at := placetest.Interval{Profile: pl.Profile, From: pl.Start, To: pl.Start + pl.Size}
			n := slices.IndexFunc(want, func(w spot) bool { return w.gpu == got.GPU && w.at == at })
			if n == 0 || n > 0 && slices.Contains(rounded, name) && close(want[n].cost, want[0].cost) {
				continue
			}
			t.Fatalf(
				"%s: %v on GPU %d; the definition has %v on GPU %d of %v",
				name,
				at,
				got.GPU,
				want[0].at,
				want[0].gpu,
				want,
			)
		}
	})
}

func close(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
}

func total(n []int) int {
	sum := 0
	for _, x := range n {
		sum += x
	}
	return sum
}
