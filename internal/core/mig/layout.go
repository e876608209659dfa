package mig

import (
	"iter"
	"math/bits"
)

// Layout is a set of placements of one GPU model: bit i represents Placements[i]. The zero value represents an empty
// GPU. A Layout can also represent other sets of placements, such as candidates or idle instances. Candidates need not
// all fit on the GPU at the same time.
type Layout uint64

// Has reports whether placement i is in the set.
func (l Layout) Has(i int) bool { return l&(1<<i) != 0 }

// With returns the set with placement i added.
func (l Layout) With(i int) Layout { return l | 1<<i }

// Without returns the set without placement i.
func (l Layout) Without(i int) Layout { return l &^ (1 << i) }

// Count returns the number of placements in the set.
func (l Layout) Count() int { return bits.OnesCount64(uint64(l)) }

// Indices yields the placements of the set in ascending order: by profile, in the GPU model's order, and then by start
// within each profile.
func (l Layout) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; l != 0; l &= l - 1 {
			if !yield(bits.TrailingZeros64(uint64(l))) {
				return
			}
		}
	}
}

// span returns a mask of size consecutive units, beginning with unit start.
func span(start, size int) uint64 {
	return (^uint64(0) >> (64 - size)) << start
}
