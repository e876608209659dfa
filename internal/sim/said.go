package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"caelum/internal/predict"
	"caelum/internal/trace"
)

// Limits says of jobs what users do: a time limit that is from to to times too long, uniformly.
func Limits(from, to float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * (from + (to-from)*chance(seed, j).Float64()) }
}

// Predictions says of jobs what a predictor might: the truth with a lognormal error.
func Predictions(sigma float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * math.Exp(sigma*chance(seed, j).NormFloat64()) }
}

// chance is a job's own: whatever is drawn for it is the same in every run.
func chance(seed uint64, j trace.Job) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(j.ID))
	h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(j.Submit)))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// foresight is what is known of how long jobs run.
type foresight struct {
	learned *predict.Ends // nil: what is said is believed
}

func (f foresight) total(said, ran float64) (total, until float64) {
	if f.learned == nil {
		return said, said
	}
	return f.learned.Expect(said, ran)
}
