package sim

import (
	"container/heap"
	"slices"

	"caelum/internal/sim/trace"
)

// contend updates the ends of the running jobs on a job's GPU after the job has started or ended.
func (s *simulation) contend(j *Job, started bool) {
	if s.Contention == nil {
		return
	}
	if s.sharing == nil {
		s.sharing = make([][]*Job, len(s.GPUs))
	}
	on := &s.sharing[s.gpuOf(j)]
	if j.speed = 1; started {
		*on = append(*on, j)
	} else {
		*on = slices.DeleteFunc(*on, func(o *Job) bool { return o == j })
	}
	var jobs []trace.Job
	for _, o := range *on {
		jobs = append(jobs, o.Job)
	}
	if len(jobs) == 0 {
		return
	}
	speed := s.Contention(jobs)
	for _, o := range *on {
		o.ends, o.speed = s.now+(o.ends-s.now)*o.speed/speed, speed
	}
	heap.Init(&s.running)
}

// gpuOf returns the GPU of a running job with one slice.
func (s *simulation) gpuOf(j *Job) int {
	if f, ok := s.room.(*fixed); ok {
		return f.slices[j.numbers[0]].gpu
	}
	return j.spots[0].GPU
}
