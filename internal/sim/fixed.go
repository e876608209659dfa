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
	holds               map[string]bool // profiles
	job                 *job
}

func newFixed(s *simulation) *fixed {
	f := &fixed{s: s}
	for k, b := range s.GPUs {
		f.free += b.Grid
		for i := range s.Static[k].Indices() {
			of := b.Profiles[b.Placements[i].Profile]
			sl := slice{kind: slices.Index(s.kinds, b), size: of.Size, compute: of.Compute, holds: map[string]bool{}}
			for _, p := range b.Profiles {
				if enough(of, p) {
					sl.holds[p.Name] = true
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

// fragmentation is no question here: what is cut stays cut, or is moved as wanted.
func (f *fixed) fragmentation() float64 { return 0 }

func (f *fixed) place(k int, r *reservation) (bool, *reservation) {
	s, j := f.s, f.s.queue.at(k)
	first := &reservation{at: math.Inf(1)}
	for i := range f.slices {
		sl := &f.slices[i]
		if !sl.holds[j.profiles[sl.kind]] || r != nil && r.slot == i && s.now+j.said > r.at {
			continue
		}
		if sl.job != nil {
			if end := sl.job.started + sl.job.said; end < first.at {
				first.at, first.slot = end, i
			}
			continue
		}
		sl.job, j.slot = j, i
		f.free -= j.size
		s.start(j, 0)
		return true, nil
	}
	return false, first
}

func (f *fixed) leave(j *job) {
	f.slices[j.slot].job = nil
	f.free += j.size
}
