package papers

import (
	"math"

	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// Memory describes a prediction of each job's peak memory. The prediction is the true peak, multiplied by a lognormal
// error and by 1 + Margin. The job requests the smallest profile with at least the predicted memory. If this profile
// is too small, the job runs out of memory at a uniformly distributed random time during its run, and is requeued
// with the next larger profile. Memory implements [sim.Memory].
//
// If the workload does not give a job's peak, the peak is a random value between the memory of the next smaller profile
// and the memory of the job's own profile.
type Memory struct {
	Models []*mig.Model // the different GPU models ([sim.Kinds])
	Error  float64      // the standard deviation of the logarithm of the error
	Margin float64
	Seed   uint64
}

// foresee returns a job's peak and its predicted peak, in MiB, and the fraction of the run after which the job fails if
// its memory is less than the peak.
func (m Memory) foresee(j trace.Job) (peak, predicted, failShare float64) {
	chance := sim.Chance(m.Seed, j)
	u, z := chance.Float64(), chance.NormFloat64()
	if peak = j.MemoryMiB; peak == 0 {
		for _, b := range m.Models {
			if own, ok := j.On(b); ok {
				has := memoryOf(b, own)
				peak = has - u*(has-below(b, has))
				break
			}
		}
	}
	return peak, peak * math.Exp(m.Error*z) * (1 + m.Margin), chance.Float64()
}

// Profile implements [sim.Memory]. If all profiles smaller than its own have too little memory, the job keeps its own
// profile. Otherwise, it requests the smallest sufficient profile.
func (m Memory) Profile(j trace.Job, b *mig.Model, own string, had float64) string {
	memory := had + 1
	if had == 0 {
		_, memory, _ = m.foresee(j)
	}
	if has := memoryOf(b, own); has >= memory && below(b, has) < memory {
		return own
	}
	least := trace.Job{MemoryMiB: memory, Compute: j.Compute, Speed: j.Speed, Slowest: j.Slowest}
	if other, ok := least.On(b); ok {
		return other
	}
	if most := b.Profiles[mostMemory(b)].Name; j.RunsOn(most) {
		return most
	}
	return own
}

// Lasts implements [sim.Memory].
func (m Memory) Lasts(j trace.Job, memory float64) float64 {
	peak, _, failShare := m.foresee(j)
	if memory < peak {
		return failShare
	}
	return 1
}

// memoryOf returns the memory of a profile in MiB.
func memoryOf(b *mig.Model, profile string) float64 {
	p, _ := b.ProfileIndex(profile)
	return b.Profiles[p].Memory()
}

// below returns the memory, in MiB, of the largest profile that has less than the given memory, or 0 if there is none.
func below(b *mig.Model, memory float64) (most float64) {
	for _, p := range b.Profiles {
		if has := p.Memory(); has < memory {
			most = max(most, has)
		}
	}
	return most
}

// mostMemory returns the index of the profile with the most memory, other than mig.Full.
func mostMemory(b *mig.Model) (most int) {
	for p := range b.Profiles {
		if b.Profiles[p].Name != mig.Full && b.Profiles[p].Memory() > b.Profiles[most].Memory() {
			most = p
		}
	}
	return most
}

// Predictions returns a function that generates a random prediction of a job's run time. A prediction is the true
// duration with a lognormal error; sigma is the standard deviation of the logarithm of the error.
func Predictions(sigma float64, seed uint64) func(trace.Job) float64 {
	return func(j trace.Job) float64 { return j.Duration * math.Exp(sigma*sim.Chance(seed, j).NormFloat64()) }
}
