package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"caelum/internal/predict"
	"caelum/internal/trace"
)

// Limits returns a function that returns random time limits similar to those that users set. They are uniformly
// distributed between from and to times the true duration.
func Limits(from, to float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * (from + (to-from)*chance(seed, j).Float64()) }
}

// Predictions returns a function that returns the random estimates of a predictor. An estimate is the true duration
// with a lognormal error. sigma is the standard deviation of its logarithm.
func Predictions(sigma float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * math.Exp(sigma*chance(seed, j).NormFloat64()) }
}

// chance returns a random source that depends only on the seed and the job. In every run, a job therefore has the same
// random numbers.
func chance(seed uint64, j trace.Job) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(j.ID))
	h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(j.Submit)))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// foresight computes the expected ends of running jobs.
type foresight struct {
	learned *predict.Ends // nil if estimates are not corrected
}

// total returns the expected run time, in seconds, of a job with this estimate that has run for ran seconds. until is
// the run time up to which the result remains valid.
func (f foresight) total(estimate, ran float64) (total, until float64) {
	if f.learned == nil {
		return estimate, estimate
	}
	return f.learned.Expect(estimate, ran)
}
