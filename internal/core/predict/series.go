package predict

import (
	"cmp"
	"math"
	"slices"
)

// seriesBuckets limits the number of intervals of a Series, so that the required memory does not grow with the duration
// of a run. At any time after the first two minutes, a Series has 64 to 128 intervals.
const seriesBuckets = 128

// maxRan limits the times in a Series, in seconds (about 30 years).
const maxRan = 1e9

// Series is a slice's memory usage over time: the highest value in each of up to 128 consecutive intervals of equal
// length. When a run outgrows the intervals, each pair of intervals becomes one interval. The zero value is an empty
// Series.
type Series struct {
	Width float64   // the length of an interval in seconds; 0 in an empty Series
	MiB   []float64 // the highest memory usage in each interval; 0 for an interval without samples
}

// Add adds a sample taken at the given time, in seconds after the start of the run. It ignores impossible values.
func (s *Series) Add(at, mib float64) {
	if !(at >= 0 && at <= maxRan && mib > 0) || math.IsInf(mib, 1) {
		return
	}
	if s.Width <= 0 {
		s.Width = 1
	}
	for at >= s.Width*seriesBuckets {
		s.halve()
	}
	k := min(int(at/s.Width), seriesBuckets-1)
	for len(s.MiB) <= k {
		s.MiB = append(s.MiB, 0)
	}
	s.MiB[k] = max(s.MiB[k], mib)
}

// halve merges each pair of intervals.
func (s *Series) halve() {
	for k := range s.MiB {
		if k%2 == 0 {
			s.MiB[k/2] = s.MiB[k]
		} else {
			s.MiB[k/2] = max(s.MiB[k/2], s.MiB[k])
		}
	}
	s.MiB, s.Width = s.MiB[:(len(s.MiB)+1)/2], 2*s.Width
}

// Merge adds the samples of an earlier Series of the same run.
func (s *Series) Merge(earlier Series) {
	for k, mib := range earlier.MiB {
		s.Add((float64(k)+0.5)*earlier.Width, mib)
	}
}

// Valid reports whether a Series that was read from the repository is consistent.
func (s Series) Valid() bool {
	if len(s.MiB) > seriesBuckets || len(s.MiB) > 0 && !(s.Width >= 1 && s.Width*seriesBuckets <= 4*maxRan) {
		return false
	}
	for _, mib := range s.MiB {
		if !(mib >= 0) || math.IsInf(mib, 1) {
			return false
		}
	}
	return true
}

// point is the highest memory usage from the start of a run until the time given by at, in seconds.
type point struct{ at, mib float64 }

// highest returns the highest memory usage since the start, at the end of each interval with samples. ran is the
// duration of the run in seconds and replaces the end of the last interval.
func (s Series) highest(ran float64) (all []point) {
	top := 0.0
	for k, mib := range s.MiB {
		if mib > 0 {
			top = max(top, mib)
			all = append(all, point{min(float64(k+1)*s.Width, ran), top})
		}
	}
	return all
}

// within returns the points that lie between two times.
func within(past []point, from, to float64) []point {
	first, _ := slices.BinarySearchFunc(past, from, func(p point, at float64) int { return cmp.Compare(p.at, at) })
	last, _ := slices.BinarySearchFunc(past, to, func(p point, at float64) int { return cmp.Compare(p.at, at) })
	for last < len(past) && past[last].at <= to {
		last++
	}
	return past[first:last]
}
