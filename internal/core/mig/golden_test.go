package mig

import (
	"slices"
	"testing"
)

// The golden numbers in this file were computed independently, before package mig was written. So if a test in this
// file fails, package mig is wrong. The numbers for the six profiles of the A100-40GB do not include the 1g.5gb+me
// profile.

func model(t testing.TB, name string, keep func(Profile) bool) *Model {
	t.Helper()
	b, err := ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return b.Select(keep)
}

func without(name string) func(Profile) bool {
	return func(p Profile) bool { return Plain(p) && p.Name != name }
}

func TestGoldenLayouts(t *testing.T) {
	for _, c := range []struct {
		model            string
		keep             func(Profile) bool
		layouts, maximal int
	}{
		{"A100-40GB", Plain, 723, 78},
		{"A100-40GB", without("1g.10gb"), 298, 19},
		{"A30-24GB", Plain, 26, 5},
		{"RTX-PRO-6000-96GB", Plain, 26, 5},
	} {
		b := model(t, c.model, c.keep)
		if n := len(b.Layouts()); n != c.layouts {
			t.Errorf("%s: %d layouts, want %d", c.model, n, c.layouts)
		}
		if n := len(b.Maximal()); n != c.maximal {
			t.Errorf("%s: %d maximal layouts, want %d", c.model, n, c.maximal)
		}
	}
}

// TestGoldenMostCompute checks that no layout of an A100 uses more compute slices than the GPU has, because every
// layout runs out of units first.
func TestGoldenMostCompute(t *testing.T) {
	b := model(t, "A100-40GB", Plain)
	most := 0
	for _, l := range b.Layouts() {
		sum := 0
		for i := range l.Indices() {
			sum += b.Profiles[b.Placements[i].Profile].Compute
		}
		most = max(most, sum)
	}
	if most != 7 {
		t.Errorf("the most compute slices of a layout: %d, want 7", most)
	}
}

func TestGoldenFirstSlice(t *testing.T) {
	six, five := model(t, "A100-40GB", Plain), model(t, "A100-40GB", without("1g.10gb"))
	var reach6, reach5, cc []int
	for start := range 7 {
		i, _ := six.Placement("1g.5gb", start)
		reach6 = append(reach6, six.ReachBeside(Layout(0).With(i), 0))
		cc = append(cc, six.Table().Info(Layout(0).With(i)).CC)
		j, _ := five.Placement("1g.5gb", start)
		reach5 = append(reach5, five.ReachBeside(Layout(0).With(j), 0))
	}
	for _, c := range []struct {
		what      string
		got, want []int
	}{
		{"reach, five profiles", reach5, []int{6, 6, 6, 6, 6, 6, 12}},
		{"reach, six profiles", reach6, []int{21, 21, 21, 21, 22, 22, 33}},
		{"CC", cc, []int{12, 12, 12, 12, 13, 13, 14}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s after one 1g.5gb at start 0..6: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// arrangement holds the properties in which two arrangements of the same profiles can differ.
type arrangement struct {
	cc   int
	room [6]int // the number of open placements of each profile
}

func arrange(b *Model, l Layout) arrangement {
	a := arrangement{cc: b.Table().Info(l).CC}
	for p := range b.Profiles {
		a.room[p] = (b.Open(l, 0) & b.OfProfile(p)).Count()
	}
	return a
}

func (a arrangement) plus(o arrangement) arrangement {
	a.cc += o.cc
	for p := range a.room {
		a.room[p] += o.room[p]
	}
	return a
}

func multiset(b *Model, layout Layout) (n [6]int) {
	for i := range layout.Indices() {
		n[b.Placements[i].Profile]++
	}
	return n
}

// groups counts the arrangements of each multiset of profiles.
type groups map[[6]int]map[arrangement]int

func (g groups) add(multiset [6]int, a arrangement) {
	if g[multiset] == nil {
		g[multiset] = map[arrangement]int{}
	}
	g[multiset][a]++
}

// beaten returns the number of arrangements for which another arrangement of the same profiles has more room for at
// least one profile, although its CC is no larger.
func (g groups) beaten() int {
	n := 0
	for _, group := range g {
		for a, times := range group {
			for o := range group {
				if o.cc <= a.cc &&
					slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5}, func(p int) bool { return o.room[p] > a.room[p] }) {
					n += times
					break
				}
			}
		}
	}
	return n
}

// TestGoldenCC checks that the CC alone does not determine for which profiles a GPU still has room.
func TestGoldenCC(t *testing.T) {
	b := model(t, "A100-40GB", Plain)
	one := groups{}
	for _, l := range b.Layouts() {
		one.add(multiset(b, l), arrange(b, l))
	}
	below := 0
	for _, group := range one {
		best := 0
		for a := range group {
			best = max(best, a.cc)
		}
		for a, times := range group {
			if a.cc < best {
				below += times
			}
		}
	}
	if below != 482 {
		t.Errorf("layouts whose CC is below the best for the same profiles: %d, want 482", below)
	}
	if n := one.beaten(); n != 138 {
		t.Errorf("layouts beaten in room by one with a CC no larger: %d, want 138", n)
	}
}

func TestGoldenPairs(t *testing.T) {
	b := model(t, "A100-40GB", Plain)
	type gpu struct {
		has [6]int
		arrangement
	}
	var gpus []gpu
	for _, l := range b.Layouts() {
		gpus = append(gpus, gpu{multiset(b, l), arrange(b, l)})
	}
	pairs, two := 0, groups{}
	for i, x := range gpus {
		for _, y := range gpus[i:] {
			has := x.has
			for p := range has {
				has[p] += y.has[p]
			}
			two.add(has, x.plus(y.arrangement))
			pairs++
		}
	}
	if pairs != 261726 {
		t.Errorf("%d unordered pairs of layouts, want 261726", pairs)
	}
	if n := two.beaten(); n != 205575 {
		t.Errorf("pairs beaten in room by one with a CC no larger: %d, want 205575", n)
	}
}
