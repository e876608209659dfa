package sim

import (
	"cmp"
	"math"
	"slices"

	"caelum/internal/core/mig"
)

// fixed implements room for GPUs with fixed layouts. A job is assigned the smallest free slice that is large enough and
// on which it can run. The slice may be larger than the job's profile.
type fixed struct {
	s      *simulation
	slices []slice
	free   int
	jobs   []int // the number of slices with a job, by GPU
	active int   // the number of GPUs with at least one running job
}

// slice is an instance in a fixed layout.
type slice struct {
	kind, size, compute int
	gpu, start          int // units
	profile             string
	memory              float64        // MiB
	holds               map[string]int // the profiles for which the slice is large enough, with their sizes in units
	job                 *Job
}

func newFixed(s *simulation) *fixed {
	f := &fixed{s: s, jobs: make([]int, len(s.GPUs))}
	for k, b := range s.GPUs {
		f.free += b.Grid
		for i := range s.Static[k].Indices() {
			of := b.Profiles[b.Placements[i].Profile]
			sl := slice{
				profile: of.Name,
				gpu:     k,
				start:   b.Placements[i].Start,
				kind:    slices.Index(s.kinds, b),
				size:    of.Size,
				compute: of.Compute,
				memory:  of.Memory(),
				holds:   map[string]int{},
			}
			for _, p := range b.Profiles {
				if enough(of, p) {
					sl.holds[p.Name] = p.Size
				}
			}
			f.slices = append(f.slices, sl)
		}
	}
	full := func(sl slice) int { return sl.holds[mig.Full] } // full GPUs come after slices of the same size
	slices.SortStableFunc(f.slices, func(a, b slice) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.compute, b.compute), cmp.Compare(full(a), full(b)))
	})
	return f
}

func (f *fixed) idle() int { return f.free }

// fragmentation returns 0, because fixed layouts never change.
func (f *fixed) fragmentation() float64 { return 0 }

func (f *fixed) place(k int, r *reservation) (bool, *reservation) {
	s, j := f.s, f.s.queue.at(k)
	free := make([][]int, len(s.nodes))
	busy := make([][]int, len(s.nodes))
	var got []int
	for i := range f.slices {
		sl := &f.slices[i]
		if sl.holds[j.profiles[sl.kind]] == 0 || !j.RunsOn(sl.profile) ||
			r != nil && s.now+j.estimate > r.at && slices.Contains(r.numbers, i) {
			continue
		}
		n := s.nodeOf[sl.gpu]
		if sl.job != nil {
			busy[n] = append(busy[n], i)
		} else if free[n] = append(free[n], i); j.slices() == 1 {
			got = free[n]
			break
		}
	}
	if j.slices() > 1 {
		got = several(j, free)
	}
	if got != nil {
		f.start(j, got)
		return true, nil
	}
	if s.Discipline != EASY || k > 0 {
		return false, nil
	}
	return false, f.reserve(j, free, busy)
}

// several returns slices for a job that needs several slices, on the first nodes that have as many free slices as the
// job needs per node.
func several(j *Job, free [][]int) (got []int) {
	each := j.offer.Wants[0].Count
	for _, on := range free {
		if len(on) >= each {
			if got = append(got, on[:each]...); len(got) == j.slices() {
				return got
			}
		}
	}
	return nil
}

func (f *fixed) start(j *Job, numbers []int) {
	slowest, least := math.Inf(1), math.Inf(1)
	for _, i := range numbers {
		sl := &f.slices[i]
		sl.job = j
		if f.jobs[sl.gpu]++; f.jobs[sl.gpu] == 1 {
			f.active++
		}
		slowest, least = min(slowest, j.SpeedOn(sl.profile)), min(least, sl.memory)
		j.units += sl.holds[j.profiles[sl.kind]]
	}
	if j.Speed != nil { // a larger slice may be faster
		j.runs = j.Duration / slowest
	}
	j.numbers = numbers
	f.free -= j.units
	f.s.start(j, 0, least)
}

// reserve returns a reservation for the job's earliest start, according to the running jobs' estimated ends. The
// reservation includes the slices for the job.
func (f *fixed) reserve(j *Job, free, busy [][]int) *reservation {
	var nodes []*reservation
	for n := range free {
		all := append(free[n], busy[n]...)
		each := j.offer.Wants[0].Count
		if len(all) < each {
			continue
		}
		slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(f.slices[a].end(), f.slices[b].end()) })
		all = all[:each]
		nodes = append(nodes, &reservation{at: max(f.s.now, f.slices[all[len(all)-1]].end()), numbers: all})
	}
	return firstOf(nodes, j)
}

// end returns the time, in seconds, at which the slice is expected to become free, or 0 if it is free.
func (sl *slice) end() float64 {
	if sl.job == nil {
		return 0
	}
	return sl.job.started + sl.job.estimate
}

func (f *fixed) leave(j *Job) {
	for _, i := range j.numbers {
		sl := &f.slices[i]
		sl.job = nil
		if f.jobs[sl.gpu]--; f.jobs[sl.gpu] == 0 {
			f.active--
		}
	}
	f.free += j.units
}
