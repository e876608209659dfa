package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"caelum/internal/core/predict"
	"caelum/internal/sim/trace"
)

// Limits returns a function that generates a random time limit for a job, similar to the limits that users set. The
// limits are uniformly distributed between from*d and to*d, where d is the job's true duration.
func Limits(from, to float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * (from + (to-from)*Chance(seed, j).Float64()) }
}

// Chance returns a random source that depends only on the seed and the job. A job is therefore given the same random
// numbers in every run.
func Chance(seed uint64, j trace.Job) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(j.ID))
	h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(j.Submit)))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Corrector corrects estimated run times (contrib/lab/ends). Times are in seconds.
type Corrector interface {
	// Finished records the estimated and the actual run time of a job that has ended.
	Finished(estimate, ran float64)
	// Version returns a number that changes whenever the results of Expect may have changed.
	Version() int
	// Expect returns the expected run time of a job that has been running for ran seconds, and the run time up to which
	// this result remains valid. The estimate can be +Inf.
	Expect(estimate, ran float64) (total, until float64)
}

// foresight computes the expected ends of running jobs.
type foresight struct {
	corrected Corrector // nil if the simulation does not correct estimates
}

// version returns a number that changes whenever the result of total for a running job may have changed.
func (f foresight) version() int {
	if f.corrected == nil {
		return 0
	}
	return f.corrected.Version()
}

// runTime returns the expected run time, in seconds, of a waiting job on the requested profile.
func (f foresight) runTime(j *Job) float64 {
	if f.corrected == nil {
		return j.estimate
	}
	total, _ := f.corrected.Expect(j.estimate, 0)
	return total
}

// total returns the expected run time, in seconds, of a job that has been running for ran seconds. takes is the run
// time on the job's slice, divided by the run time on the requested profile. until is the run time up to which the
// result remains valid.
func (f foresight) total(j *Job, takes, ran float64) (total, until float64) {
	estimate := j.estimate * takes
	switch {
	case f.corrected != nil:
		return f.corrected.Expect(estimate, ran)
	case j.high > 0:
		total, until = predict.Expect(estimate, j.high*takes, ran)
		if j.Limit > 0 {
			total = min(total, j.Limit)
		}
		return total, until
	}
	return estimate, estimate
}
