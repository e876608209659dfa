package place

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/mig"
)

// The definitions of the policies, in terms of the sets of intervals of the oracle.

// acquisition returns how an instance can be acquired, from 0 (an idle one) to 2 (idle ones have to be destroyed); -1:
// it cannot.
func (o plainGPU) acquisition(x interval) int {
	switch {
	case !o.fits(o.busy, x):
		return -1
	case slices.Contains(o.idle, x):
		return 0
	case o.fits(slices.Concat(o.busy, o.idle), x):
		return 1
	}
	return 2
}

// spot is a candidate. The numbers of cost are compared in their order; less is better.
type spot struct {
	gpu  int
	at   interval
	cost []float64
}

// question is the input of a definition.
type question struct {
	gpus    []plainGPU
	profile string
	now, d  float64
	weights map[string]float64
	futures futures
}

// by ranks the candidates that can be acquired in the cheapest way that any admitted candidate can be acquired in.
func (q question) by(
	admitted func(k int, x interval) bool,
	costs func(o plainGPU, k int, x interval) []float64,
) []spot {
	for kind := range 3 {
		var found []spot
		for k, o := range q.gpus {
			for _, x := range every(o.model) {
				if o.model.Profiles[x.profile].Name == q.profile && o.acquisition(x) == kind && admitted(k, x) {
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

// all ranks the candidates that can be acquired in any way.
func (q question) all(costs func(o plainGPU, k int, x interval) []float64) []spot {
	var found []spot
	for k, o := range q.gpus {
		for _, x := range every(o.model) {
			if o.model.Profiles[x.profile].Name == q.profile && o.acquisition(x) >= 0 {
				found = append(found, spot{k, x, costs(o, k, x)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b spot) int { return slices.Compare(a.cost, b.cost) })
	return found
}

func anywhere(int, interval) bool { return true }

// shares returns the weights of a GPU model's profiles: the share of each in all requests.
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

// definitions rank the candidates, by policy. Ties go to the lowest GPU, then to the lowest start.
var definitions = map[string]func(q question) []spot{
	"first-fit": func(q question) []spot {
		return q.by(anywhere, func(plainGPU, int, interval) []float64 { return nil })
	},
	"best-fit": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			after := with(o.busy, x)
			return []float64{float64(o.freeUnits(after)), -float64(total(o.cc(after)))}
		})
	},
	"driver": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			return []float64{float64(k), -float64(total(o.cc(with(o.busy, x))))}
		})
	},
	"reach": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			after := with(o.busy, x)
			share := float64(q.futures.reach(o, after)) / float64(q.futures.reach(o, o.busy))
			return []float64{-share, float64(total(o.cc(o.busy)) - total(o.cc(after)))}
		})
	},
	"mcc": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			return []float64{-float64(total(o.cc(with(o.busy, x))))}
		})
	},
	"mecc": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			sum := 0.0
			for p, n := range o.cc(with(o.busy, x)) {
				sum -= q.shares(o.model)[p] * float64(n)
			}
			return []float64{sum}
		})
	},
	"fgd": func(q question) []spot {
		return q.by(anywhere, func(o plainGPU, k int, x interval) []float64 {
			w := q.shares(o.model)
			return []float64{o.lost(with(o.busy, x), w) - o.lost(o.busy, w)}
		})
	},
	"fragaware": func(q question) []spot {
		return q.all(func(o plainGPU, k int, x interval) []float64 {
			loaded := 0.0
			if taken := o.model.Grid - o.freeUnits(o.busy); float64(taken) >= 0.4*float64(o.model.Grid) {
				loaded = 1
			}
			return []float64{loaded, math.Round(o.frag(with(o.busy, x)) * 1e9), float64(o.acquisition(x))}
		})
	},
	"grmu": func(q question) []spot {
		isWhole := func(k int, x interval) bool { return x.to-x.from == q.gpus[k].model.Grid }
		heavy, light := 0, 0
		for k, o := range q.gpus {
			if len(o.busy) > 0 && isWhole(k, o.busy[0]) {
				heavy++
			} else if len(o.busy) > 0 {
				light++
			}
		}
		most := max(1, len(q.gpus)*3/10)
		asDriver := func(o plainGPU, k int, x interval) []float64 {
			return []float64{float64(k), -float64(total(o.cc(with(o.busy, x))))}
		}
		if found := q.by(func(k int, x interval) bool { return len(q.gpus[k].busy) > 0 }, asDriver); found != nil {
			return found
		}
		return q.by(func(k int, x interval) bool {
			if isWhole(k, x) {
				return len(q.gpus[k].busy) == 0 && heavy < most
			}
			return len(q.gpus[k].busy) == 0 && light < max(1, len(q.gpus)-most)
		}, asDriver)
	},
	"lifetime": func(q question) []spot {
		return q.all(func(o plainGPU, k int, x interval) []float64 {
			sum := 0.0
			for _, slot := range every(o.model) {
				if !overlap(slot, x) {
					continue
				}
				free := q.now // F of the slot
				for _, y := range o.busy {
					if overlap(slot, y) {
						free = max(free, o.until[y])
					}
				}
				for _, u := range o.blocked {
					if slot.from <= u && u < slot.to {
						free = math.Inf(1)
					}
				}
				sum += float64(slot.to-slot.from) * max(0, q.now+q.d-free)
			}
			return []float64{sum, float64(o.acquisition(x)), -float64(q.futures.reach(o, with(o.busy, x)))}
		})
	},
}

// rounded are the policies whose costs are sums of fractions. Equal costs may differ slightly, depending on the order
// of the summands.
var rounded = []string{"mecc", "fgd"}

func TestPoliciesAgainstOracle(t *testing.T) {
	known := futures{}
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawGPUs(t)
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
			q.gpus = append(q.gpus, plainly(g))
		}
		s := &Situation{Pool: NewPool(gpus), Now: q.now, Weights: NewWeights(q.weights)}
		for _, name := range Names() {
			define, ok := definitions[name]
			if !ok {
				if name != "qla" && name != "scarcity" {
					t.Fatalf("no definition of %s", name)
				}
				continue
			}
			policy, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			got := policy.Choose(s, Request{q.profile, q.d})
			want := define(q)
			if (got.Verdict == Here) != (len(want) > 0) {
				t.Fatalf("%s: %v; the definition has %d candidates", name, got, len(want))
			}
			if len(want) == 0 {
				continue
			}
			pl := gpus[got.GPU].Model.Placements[got.Placement]
			at := interval{pl.Profile, pl.Start, pl.Start + pl.Size}
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
