package sim

import (
	"cmp"
	"math"
	"slices"
)

// fixed is GPUs that were cut once and for all. A job takes the smallest free slice that holds it, a larger one too.
type fixed struct {
	s      *simulation
	slices []slice
	free   int
}

// slice of a fixed layout.
type slice struct {
	kind, size, compute int
	gpu, start          int // units
	profile             string
	holds               map[string]int // profiles that it is large enough for, and their sizes in units
	job                 *job
}

func newFixed(s *simulation) *fixed {
	f := &fixed{s: s}
	for k, b := range s.GPUs {
		f.free += b.Grid
		for i := range s.Static[k].Indices() {
			of := b.Profiles[b.Placements[i].Profile]
			sl := slice{profile: of.Name, gpu: k, start: b.Placements[i].Start, kind: slices.Index(s.kinds, b), size: of.Size, compute: of.Compute, holds: map[string]int{}}
			for _, p := range b.Profiles {
				if enough(of, p) {
					sl.holds[p.Name] = p.Size
				}
			}
			f.slices = append(f.slices, sl)
		}
	}
	slices.SortStableFunc(f.slices, func(a, b slice) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.compute, b.compute))
	})
	return f
}

func (f *fixed) idle() int { return f.free }

// fragmentation is no question here: what is cut stays cut.
func (f *fixed) fragmentation() float64 { return 0 }

func (f *fixed) place(k int, r *reservation) (bool, *reservation) {
	s, j := f.s, f.s.queue.at(k)
	var free []int
	var busy []int // by when they are said to be free
	for i := range f.slices {
		sl := &f.slices[i]
		if sl.holds[j.profiles[sl.kind]] == 0 || r != nil && s.now+j.said > r.at && slices.Contains(r.numbers, i) {
			continue
		}
		if sl.job != nil {
			busy = append(busy, i)
		} else if free = append(free, i); len(free) == j.slices() {
			break
		}
	}
	if len(free) == j.slices() {
		slowest := math.Inf(1)
		for _, i := range free {
			f.slices[i].job = j
			slowest = min(slowest, cmp.Or(j.Speed[f.slices[i].profile], 1))
			j.units += f.slices[i].holds[j.profiles[f.slices[i].kind]]
		}
		if j.Speed != nil { // a larger slice is faster
			j.runs = j.Duration / slowest
		}
		j.numbers = free
		f.free -= j.units
		s.start(j, 0)
		return true, nil
	}
	if s.Discipline != EASY || k > 0 {
		return false, nil
	}
	slices.SortStableFunc(busy, func(a, b int) int { return cmp.Compare(f.slices[a].end(), f.slices[b].end()) })
	first := &reservation{at: s.now}
	for _, i := range append(free, busy...) {
		if len(first.numbers) < j.slices() {
			first.numbers = append(first.numbers, i)
			first.at = max(first.at, f.slices[i].end())
		}
	}
	if len(first.numbers) < j.slices() {
		first.at = math.Inf(1)
	}
	return false, first
}

// end is when the slice is said to be free, in seconds; 0: it is.
func (sl *slice) end() float64 {
	if sl.job == nil {
		return 0
	}
	return sl.job.started + sl.job.said
}

func (f *fixed) leave(j *job) {
	for _, i := range j.numbers {
		f.slices[i].job = nil
	}
	f.free += j.units
}
