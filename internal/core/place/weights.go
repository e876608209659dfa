package place

import "caelum/internal/core/mig"

// Weights is the relative frequency of requests for each profile. The unit is arbitrary. A profile without an entry was
// not requested. Weights is not safe for concurrent use.
type Weights struct {
	asked map[string]float64
	on    []modelWeights
}

type modelWeights struct {
	model *mig.Model
	of    []float64 // one weight for each profile of the GPU model; the sum is 1
}

// NewWeights computes weights from the number of requests for each profile name.
func NewWeights(asked map[string]float64) *Weights { return &Weights{asked: asked} }

// WeightsOn returns the weights of a GPU model's profiles. They are computed only once for each model, so that a
// decision allocates no memory.
func (s *Situation) WeightsOn(b *mig.Model) []float64 {
	w := s.Weights
	if w == nil {
		w = &s.Pool.alike
	}
	for _, on := range w.on {
		if on.model == b {
			return on.of
		}
	}
	of := make([]float64, len(b.Profiles))
	sum := 0.0
	for i, p := range b.Profiles {
		of[i] = w.asked[p.Name]
		sum += of[i]
	}
	for i := range of {
		if sum > 0 {
			of[i] /= sum
		} else { // none of the GPU model's profiles was requested, so all weights are equal
			of[i] = 1 / float64(len(of))
		}
	}
	w.on = append(w.on, modelWeights{b, of})
	return of
}
