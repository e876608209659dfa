package mig

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The oracle is a simple implementation of MIG's rules, based on sets of intervals. It uses the tables in models.txt,
// but none of the package's other code.

type interval struct {
	name     string
	from, to int // units [from, to)
}

type oracle struct {
	profiles map[string]Profile
	every    []interval
	whole    Profile // the plain profile of the whole GPU
}

// newOracle returns the oracle for b. It uses the whole-GPU resources of from, the model from which b was selected.
func newOracle(b, from *Model) oracle {
	o := oracle{profiles: map[string]Profile{}}
	for _, p := range b.Profiles {
		o.profiles[p.Name] = p
		for _, s := range p.Starts {
			o.every = append(o.every, interval{p.Name, s, s + p.Size})
		}
	}
	for _, p := range from.Profiles {
		if p.Size == from.Grid && Plain(p) {
			o.whole = p
		}
	}
	return o
}

func (o oracle) legal(set []interval) bool {
	var compute, dec, enc, jpeg, ofa int
	for k, x := range set {
		same := 0
		for m, y := range set {
			if m != k && x.from < y.to && y.from < x.to {
				return false
			}
			if y.name == x.name {
				same++
			}
		}
		p := o.profiles[x.name]
		if same > p.Max {
			return false
		}
		compute += p.Compute
		dec += max(p.DEC, 0)
		enc += max(p.ENC, 0)
		jpeg += max(p.JPEG, 0)
		ofa += max(p.OFA, 0)
	}
	within := func(n, whole int) bool { return whole < 0 || n <= whole }
	return compute <= o.whole.Compute && within(dec, o.whole.DEC) && within(enc, o.whole.ENC) &&
		within(jpeg, o.whole.JPEG) && within(ofa, o.whole.OFA)
}

// fits reports whether x can be added to set on a GPU with blocked units.
func (o oracle) fits(set []interval, x interval, blocked uint64) bool {
	for u := x.from; u < x.to; u++ {
		if blocked>>u&1 == 1 {
			return false
		}
	}
	return !slices.Contains(set, x) && o.legal(append(slices.Clone(set), x))
}

// layouts returns all legal sets of intervals.
func (o oracle) layouts() [][]interval {
	all := [][]interval{nil}
	for _, x := range o.every {
		for _, set := range all {
			if o.fits(set, x, 0) {
				all = append(all, append(slices.Clone(set), x))
			}
		}
	}
	return all
}

// reach returns the number of maximal sets that include l and do not use the blocked units.
func (o oracle) reach(all [][]interval, l []interval, blocked uint64) int {
	n := 0
	for _, set := range all {
		contains := !slices.ContainsFunc(l, func(x interval) bool { return !slices.Contains(set, x) })
		avoids := !slices.ContainsFunc(set, func(x interval) bool { return !o.fits(nil, x, blocked) })
		if contains && avoids &&
			!slices.ContainsFunc(o.every, func(x interval) bool { return o.fits(set, x, blocked) }) {
			n++
		}
	}
	return n
}

func intervals(b *Model, l Layout) []interval {
	var set []interval
	for i := range b.Placements {
		if l.Has(i) {
			pl := b.Placements[i]
			set = append(set, interval{b.Profiles[pl.Profile].Name, pl.Start, pl.Start + pl.Size})
		}
	}
	return set
}

// subject is a GPU model to be tested, with its oracle and the layouts according to the oracle.
type subject struct {
	*Model
	name string
	oracle
	all [][]interval
}

// subjects returns every GPU model three times: with all profiles, with the plain profiles, and without the profile of
// the whole GPU. All three have the resources of the whole GPU.
func subjects() []subject {
	var subs []subject
	for _, from := range Models() {
		for what, keep := range map[string]func(Profile) bool{
			"all":   func(Profile) bool { return true },
			"plain": Plain,
			"parts": func(p Profile) bool { return p.Size < from.Grid },
		} {
			b := from.Select(keep)
			o := newOracle(b, from)
			subs = append(subs, subject{b, from.Name + " " + what, o, o.layouts()})
		}
	}
	slices.SortFunc(subs, func(x, y subject) int { return strings.Compare(x.name, y.name) })
	return subs
}

func TestLayoutsAgainstOracle(t *testing.T) {
	for _, s := range subjects() {
		want := map[Layout]bool{}
		for _, set := range s.all {
			var l Layout
			for _, x := range set {
				i, ok := s.Placement(x.name, x.from)
				if !ok {
					t.Fatalf("%s: no placement %v", s.name, x)
				}
				l = l.With(i)
			}
			want[l] = true
		}
		got := s.Layouts()
		if len(got) != len(want) {
			t.Errorf("%s: %d layouts, the oracle has %d", s.name, len(got), len(want))
		}
		for _, l := range got {
			if !want[l] {
				t.Errorf("%s: %s is not legal", s.name, s.Draw(l))
			}
		}
		t.Logf("%s: %d placements, %d layouts, %d maximal", s.name, len(s.Placements), len(got), len(s.Maximal()))
	}
}

func TestAgainstOracle(t *testing.T) {
	subs := subjects()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(subs).Draw(t, "board")
		l := rapid.SampledFrom(s.Layouts()).Draw(t, "layout")
		blocked := rapid.Uint64Range(0, 1<<s.Grid-1).Draw(t, "blocked") &^ s.Occupied(l)
		set := intervals(s.Model, l)

		for i, x := range s.every {
			if got, want := s.Open(l, blocked).Has(i), s.fits(set, x, blocked); got != want {
				t.Errorf(
					"%s: open alongside %s: %v, the oracle has %v",
					s.Label(i),
					s.DrawBeside(l, blocked),
					got,
					want,
				)
			}
			if got, want := s.Fits(l, i), s.fits(set, x, 0); got != want {
				t.Errorf("%s: fits %s: %v, the oracle has %v", s.Label(i), s.Draw(l), got, want)
			}
		}
		if got, want := s.ReachBeside(l, 0), s.reach(s.all, set, 0); got != want {
			t.Errorf("reach of %s: %d, want %d", s.Draw(l), got, want)
		}
		if got, want := s.ReachBeside(l, blocked), s.reach(s.all, set, blocked); got != want {
			t.Errorf("reach of %s: %d, want %d", s.DrawBeside(l, blocked), got, want)
		}
		every := rapid.Uint64()
		first, second := every.Draw(t, "any"), every.Draw(t, "of which") // a bit is set in both with probability 1/4
		some := Layout(first & second & uint64(span(0, len(s.Placements))))
		if got, want := s.Legal(some), s.legal(intervals(s.Model, some)); got != want {
			t.Errorf("%s legal: %v, the oracle has %v", s.List(some), got, want)
		}
	})
}
