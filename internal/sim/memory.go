package sim

import (
	"container/heap"
	"math"

	"caelum/internal/mig"
	"caelum/internal/trace"
)

// Memory is how well it is foreseen how much memory a job needs at its peak: the truth with a lognormal error, and a
// share of that on top as a margin. The job asks for the smallest profile that holds what is foreseen. If that is too
// small it runs out of memory at some moment of its run, all of which are equally likely, and comes back to ask for the
// next larger one.
//
// A job whose peak the workload does not tell is given one at random: more than the next smaller memory there is among
// the profiles, and no more than its own profile has.
type Memory struct {
	Error  float64 // standard deviation of the logarithm
	Margin float64
	Seed   uint64
}

// requeueDelay is how long a job that was requeued may not start, in seconds: slurmctld lets its credentials expire
// first, after 120 s (cred_expire of AuthInfo, slurm.conf(5)).
const requeueDelay = 121

// foresee has a job ask for what is foreseen that it needs.
func (m *Memory) foresee(s *simulation, j *job) {
	chance := chance(m.Seed, j.Job)
	u, z := chance.Float64(), chance.NormFloat64()
	j.dies = chance.Float64()
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

// ask has a job ask for profiles with this much memory, in MiB: its own where that has no more than it takes, else the
// smallest.
func (s *simulation) ask(j *job, memory float64) {
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

// requeue has a job that is out of memory come back and ask for more than it had.
func (s *simulation) requeue(j *job) {
	s.ask(j, j.memory+1)
	j.units, j.spots, j.numbers = 0, nil, nil
	j.since, j.ends = s.now, s.now+requeueDelay
	heap.Push(&s.away, j)
}

// below is the most memory of a profile that has less than this, in MiB; 0 if there is none.
func below(b *mig.Model, memory float64) (most float64) {
	for _, p := range b.Profiles {
		if has := p.Memory(); has < memory {
			most = max(most, has)
		}
	}
	return most
}

func mostMemory(b *mig.Model) (most int) {
	for p := range b.Profiles {
		if b.Profiles[p].Memory() > b.Profiles[most].Memory() {
			most = p
		}
	}
	return most
}
