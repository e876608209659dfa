package place_test

import (
	"testing"

	"caelum/internal/place"
)

// TestInputs checks that each policy uses only the inputs that InputsOf returns.
func TestInputs(t *testing.T) {
	s := loaded(t, 16, 0.95)
	s.Weights = place.NewWeights(map[string]float64{"1g.5gb": 1, "3g.20gb": 4})
	for _, name := range place.Names() {
		p, err := place.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		inputs := place.InputsOf(p)
		less := *s
		less.Behind = s.Behind[:inputs.Behind]
		if !inputs.Weights {
			less.Weights = nil
		}
		if !inputs.Mean {
			less.MeanDuration = 0
		}
		if !inputs.Ends {
			gpus := make([]place.GPU, s.Pool.Len())
			for k := range gpus {
				gpus[k] = s.Pool.GPU(k)
				gpus[k].Ends = nil
			}
			less.Pool = place.NewPool(gpus)
		}
		for _, profile := range []string{"1g.5gb", "2g.10gb", "3g.20gb"} {
			r := place.Request{Profile: profile, Duration: 1800}
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
