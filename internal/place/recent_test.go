package place

import (
	"maps"
	"math"
	"testing"
)

func TestRecent(t *testing.T) {
	var r Recent
	if len(r.Weights().asked) != 0 || r.MeanDuration() != 0 {
		t.Errorf("without requests: %v, %v", r.Weights(), r.MeanDuration())
	}
	for range 3 {
		r.Asked(Request{"1g.5gb", 100})
	}
	r.Asked(Request{"7g.40gb", 500})
	if w := r.Weights().asked; !maps.Equal(w, map[string]float64{"1g.5gb": 3, "7g.40gb": 1}) ||
		r.MeanDuration() != 200 {
		t.Errorf("%v, %v", w, r.MeanDuration())
	}
	r.Asked(Request{"7g.40gb", math.Inf(1)})
	if r.MeanDuration() != 200 {
		t.Errorf("with a job of unknown duration: %v", r.MeanDuration())
	}
	for range recentKept {
		r.Asked(Request{"2g.10gb", 7})
	}
	if w := r.Weights().asked; len(w) != 1 || r.MeanDuration() != 7 {
		t.Errorf("old requests still count: %v, %v", w, r.MeanDuration())
	}
}

// TestInputs checks that a policy uses no other inputs than those that InputsOf returns.
func TestInputs(t *testing.T) {
	s := loaded(t, 16, 0.95)
	s.Weights = NewWeights(map[string]float64{"1g.5gb": 1, "3g.20gb": 4})
	for _, name := range Names() {
		p, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		inputs := InputsOf(p)
		less := *s
		less.Behind = s.Behind[:inputs.Behind]
		if !inputs.Weights {
			less.Weights = nil
		}
		if !inputs.Mean {
			less.MeanDuration = 0
		}
		if !inputs.Ends {
			gpus := make([]GPU, s.Pool.Len())
			for k := range gpus {
				gpus[k] = s.Pool.GPU(k)
				gpus[k].Ends = nil
			}
			less.Pool = NewPool(gpus)
		}
		for _, profile := range []string{"1g.5gb", "2g.10gb", "3g.20gb"} {
			r := Request{profile, 1800}
			if all, some := p.Choose(s, r), p.Choose(&less, r); all != some {
				t.Errorf(
					"%s places %s at %+v; with only the inputs %+v: %+v",
					name,
					profile,
					all,
					inputs,
					some,
				)
			}
		}
	}
}
