package place

import "caelum/internal/mig"

// Weights is how often each profile was asked for, in any unit; a profile that is not there was not. Not safe for
// concurrent use.
type Weights struct {
	asked map[string]float64
	on    []modelWeights
}

type modelWeights struct {
	board *mig.Model
	of    []float64 // by profile of the GPU model; they sum to 1
}

// NewWeights takes the counts by profile name.
func NewWeights(asked map[string]float64) *Weights { return &Weights{asked: asked} }

// WeightsOn are the weights by profile of a GPU model. They are made once for each, so that a decision allocates
// nothing.
func (s *Situation) WeightsOn(b *mig.Model) []float64 {
	w := s.Weights
	if w == nil {
		w = &s.Pool.alike
	}
	for _, on := range w.on {
		if on.board == b {
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
		} else { // none of this GPU model's was asked for: all alike
			of[i] = 1 / float64(len(of))
		}
	}
	w.on = append(w.on, modelWeights{b, of})
	return of
}
