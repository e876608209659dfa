package oracle

import (
	"strings"
	"testing"

	"caelum/internal/core/mig"
)

// TestPackAgainstLayouts checks that Pack accepts a multiset of profiles on an empty GPU if and only if a layout
// contains it. The layouts come from package mig, which shares no code with Pack.
func TestPackAgainstLayouts(t *testing.T) {
	for _, name := range []string{"A100-40GB", "A30-24GB"} {
		b, err := mig.ModelByName(name)
		if err != nil {
			t.Fatal(err)
		}
		b = b.Select(mig.Plain)
		g, err := NewGPUs(name, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		possible := map[string]bool{}
		for _, l := range b.Layouts() {
			n := map[string]int{}
			for i := range l.Indices() {
				n[b.Profiles[b.Placements[i].Profile].Name]++
			}
			possible[list(n)] = true
		}
		tried := 0
		var try func(k int, n map[string]int)
		try = func(k int, n map[string]int) {
			if k == len(b.Profiles) {
				tried++
				if got := g.Pack(nil, n); got != possible[list(n)] {
					t.Errorf("%s: Pack(%s) is %v", name, list(n), got)
				}
				return
			}
			for c := range b.Profiles[k].Max + 2 {
				n[b.Profiles[k].Name] = c
				try(k+1, n)
			}
			delete(n, b.Profiles[k].Name)
		}
		try(0, map[string]int{})
		if tried < len(possible) || len(possible) < 10 {
			t.Errorf("%s: tried %d multisets, but the layouts contain %d", name, tried, len(possible))
		}
	}
}

func TestPackBesideInstances(t *testing.T) {
	g, err := NewGPUs("A100-40GB", 2, false)
	if err != nil {
		t.Fatal(err)
	}
	at := func(gpu, start int, profile string) Interval {
		return Interval{gpu, start, g.kinds[profile].size, profile}
	}
	for _, c := range []struct {
		present []Interval
		want    string
		ok      bool
	}{
		{nil, "7g.40gb 7g.40gb", true},
		{nil, "7g.40gb 7g.40gb 1g.5gb", false},
		{[]Interval{at(0, 0, "1g.5gb")}, "7g.40gb", true},
		{[]Interval{at(0, 0, "1g.5gb"), at(1, 6, "1g.5gb")}, "7g.40gb", false},
		{[]Interval{at(0, 3, "1g.5gb"), at(1, 3, "1g.5gb")}, "4g.20gb", false}, // a 4g.20gb can start only at 0
		{[]Interval{at(0, 3, "1g.5gb"), at(1, 3, "1g.5gb")}, "3g.20gb 3g.20gb", true},
		{[]Interval{at(0, 0, "3g.20gb"), at(0, 4, "3g.20gb"), at(1, 0, "7g.40gb")}, "1g.5gb", false},
		{[]Interval{at(0, 0, "7g.40gb"), at(0, 4, "1g.5gb")}, "", false}, // the instances overlap
		{nil, "7g.80gb", false},
		{nil, "1g.6gb 1g.6gb 1g.6gb 1g.6gb 2g.20gb 2g.20gb", true}, // four 1g.10gb, two 3g.20gb
		{nil, "2g.20gb 2g.20gb 2g.20gb 2g.20gb 1g.5gb", false},
	} {
		want := map[string]int{}
		for _, p := range strings.Fields(c.want) {
			want[p]++
		}
		if got := g.Pack(c.present, want); got != c.ok {
			t.Errorf("Pack(%v, %s) is %v", c.present, c.want, got)
		}
	}
}

// TestOwn compares Own's results with those of package mig's EquivalentProfile, which the agents use.
func TestOwn(t *testing.T) {
	names := map[string]bool{}
	for _, b := range mig.Models() {
		for _, p := range b.Profiles {
			names[p.Name] = true
		}
	}
	asked := 0
	for _, b := range mig.Models() {
		g, err := NewGPUs(b.Name, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var all mig.Layout
		for p := range b.Profiles {
			all |= b.OfProfile(p)
		}
		for name := range names {
			want, _ := b.EquivalentProfile(name, all)
			if got := g.Own(name); got != want {
				t.Errorf("Own returns %q for %s on %s, not %q", got, name, b.Name, want)
			}
			asked++
		}
	}
	if asked < 100 {
		t.Errorf("the test compared only %d profiles", asked)
	}
}
