package place

import "caelum/internal/mig"

// Reach chooses, on one GPU, the placement of profile p (an index in the board's Profiles) among candidates (a Layout used
// as a set): the one whose successor keeps the most maximal layouts reachable; ties go to the larger CC, then to the lowest
// start. Blocked units are part of no future. Candidates that do not fit beside l are passed over; ok is false when none
// does.
func Reach(b *mig.Board, l mig.Layout, blocked uint64, p int, candidates mig.Layout) (placement int, ok bool) {
	var best cost
	f := futuresOf(b, l, blocked)
	for i := range (candidates & b.OfProfile(p) & b.Open(l, blocked)).Indices() {
		if c := f.cost(i); !ok || c.less(best) {
			placement, best, ok = i, c, true
		}
	}
	return placement, ok
}

// MostReach keeps the most futures of all GPUs together: see the essay of the package.
type MostReach struct{}

// Choose implements [Policy].
func (MostReach) Choose(gpus []GPU, profile string) (gpu, placement int, ok bool) {
	var best cost
	var f futures
	seen := -1
	for k, i := range candidates(gpus, profile) {
		if k != seen {
			f, seen = futuresOf(gpus[k].Board, gpus[k].Layout, gpus[k].Blocked), k
		}
		if c := f.cost(i); !ok || c.less(best) {
			gpu, placement, best, ok = k, i, c, true
		}
	}
	return gpu, placement, ok
}

// futures is what one GPU can still become. Idle instances do not count: they go when their room is wanted.
type futures struct {
	board     *mig.Board
	layout    mig.Layout
	blocked   uint64
	maximal   []mig.Layout
	reach, cc int
}

func futuresOf(b *mig.Board, l mig.Layout, blocked uint64) futures {
	maximal := b.MaximalBeside(blocked)
	return futures{b, l, blocked, maximal, mig.Containing(maximal, l), b.Open(l, blocked).Count()}
}

// cost of a placement: what its GPU's reach was and is then, and how many placements it closes.
type cost struct{ before, after, closes int }

func (f futures) cost(i int) cost {
	next := f.layout.With(i)
	return cost{f.reach, mig.Containing(f.maximal, next), f.cc - f.board.Open(next, f.blocked).Count()}
}

// less compares the shares of reach that are left, after/before, crosswise: in integers, so that ties are ties.
func (c cost) less(o cost) bool {
	if mine, theirs := c.after*o.before, o.after*c.before; mine != theirs {
		return mine > theirs
	}
	return c.closes < o.closes
}
