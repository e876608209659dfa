package sim

import (
	"container/heap"
	"math"

	"caelum/internal/mig"
	"caelum/internal/trace"
)

// Memory describes a prediction of each job's peak memory. The prediction is the true peak, multiplied by a lognormal
// error and by 1 + Margin. The job requests the smallest profile with at least the predicted memory. If this profile
// is too small, the job runs out of memory at a uniformly distributed random time during its run, and is requeued
// with the next larger profile.
//
// If the workload does not give a job's peak, the peak is a random value between the memory of the next smaller profile
// and the memory of the job's own profile.
type Memory struct {
	Error  float64 // the standard deviation of the logarithm of the error
	Margin float64
	Seed   uint64
}

// RequeueDelay is the time, in seconds, before a requeued job can start. slurmctld first waits for the job's
// credentials to expire after 120 s (cred_expire of AuthInfo, slurm.conf(5)).
const RequeueDelay = 121

// foresee sets a random peak if the workload does not give the job's peak, and makes the job request the predicted
// memory.
func (m *Memory) foresee(s *simulation, j *Job) {
	chance := chance(m.Seed, j.Job)
	u, z := chance.Float64(), chance.NormFloat64()
	j.failShare = chance.Float64()
	for k, b := range s.kinds {
		if p, ok := b.ProfileIndex(j.profiles[k]); ok {
			if j.peak = j.MemoryMiB; j.peak == 0 {
				has := b.Profiles[p].Memory()
				j.peak = has - u*(has-below(b, has))
			}
			break
		}
	}
	s.ask(j, j.peak*math.Exp(m.Error*z)*(1+m.Margin))
}

// ask makes a job request a profile with at least the given memory, in MiB, on each GPU model. If all profiles smaller
// than its own have too little memory, the job keeps its own profile. Otherwise, it requests the smallest sufficient
// profile.
func (s *simulation) ask(j *Job, memory float64) {
	for k, b := range s.kinds {
		name, ok := j.Job.On(b)
		if !ok {
			continue
		}
		p, _ := b.ProfileIndex(name)
		if has := b.Profiles[p].Memory(); has < memory || below(b, has) >= memory {
			least := trace.Job{MemoryMiB: memory, Compute: j.Compute, Speed: j.Speed, Slowest: j.Slowest}
			if other, ok := least.On(b); ok {
				name = other
			} else if most := b.Profiles[mostMemory(b)].Name; j.RunsOn(most) {
				name = most
			}
		}
		j.profiles[k] = name
	}
	s.settle(j)
}

// requeue returns a job that ran out of memory to the queue, requesting more memory than in its last run.
func (s *simulation) requeue(j *Job) {
	s.ask(j, j.memory+1)
	s.absent(j, RequeueDelay)
}

// absent removes a job from the cluster after its run has ended and returns it to the queue after delay seconds.
func (s *simulation) absent(j *Job, delay float64) {
	j.units, j.spots, j.numbers = 0, nil, nil
	j.since, j.ends = s.now, s.now+delay
	heap.Push(&s.away, j)
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
