package offer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestSound checks random plans against a simple implementation of the rules, which stores units as booleans and checks
// one placement after another.
func TestSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawNode(t)
		jobs := drawDemands(t, gpus)
		plan := Make(NewCluster(place.Reach, gpus), jobs, false)
		for i, g := range gpus {
			mustFit(t, fmt.Sprintf("GPU %d", i), g, plan.Offers[i])
		}
		if err := plan.Check(gpus); err != nil {
			t.Fatal(err)
		}
		// The offers must include all slices that the placed jobs need together.
		need := map[string]int{}
		for _, d := range jobs {
			if slices.Contains(served(jobs, plan), d.ID) {
				for _, w := range d.Wants {
					need[w.Profile] += w.Count
				}
			}
		}
		on := plan.Counts(gpus)
		for p, n := range need {
			if on[p] < n {
				t.Fatalf("the served jobs need %d of %s, %d are on offer", n, p, on[p])
			}
		}
	})
}

// mustFit checks that the offers are allowed, and that they fit on a GPU alongside the busy placements and blocked
// units.
func mustFit(t *rapid.T, gpu string, g place.GPU, offers mig.Layout) {
	var taken [64]bool
	for u := range taken {
		taken[u] = g.Blocked&(1<<u) != 0
	}
	of := map[int]int{}
	put := func(p int) {
		pl := g.Model.Placements[p]
		for u := pl.Start; u < pl.Start+pl.Size; u++ {
			if taken[u] {
				t.Fatalf("%s: unit %d twice: busy %s, offers %s", gpu, u, g.Model.List(g.Busy), g.Model.List(offers))
			}
			taken[u] = true
		}
		if of[pl.Profile]++; of[pl.Profile] > g.Model.Profiles[pl.Profile].Max {
			t.Fatalf("%s: too many %s", gpu, g.Model.Profiles[pl.Profile].Name)
		}
	}
	for p := range g.Model.Placements {
		if g.Busy.Has(p) {
			put(p)
		}
	}
	for p := range g.Model.Placements {
		if offers.Has(p) {
			put(p)
			if !g.Offerable.Has(p) {
				t.Fatalf("%s: %s is offered but not offerable", gpu, g.Model.Label(p))
			}
		}
	}
}

// TestCheckFinds checks that Check rejects each kind of plan that cannot be carved.
func TestCheckFinds(t *testing.T) {
	b := plain(t, "A100-40GB")
	at := func(profile string, start int) mig.Layout {
		p, ok := b.Placement(profile, start)
		if !ok {
			t.Fatalf("no %s@%d", profile, start)
		}
		return mig.Layout(0).With(p)
	}
	for _, c := range []struct {
		why   string
		gpu   place.GPU
		offer mig.Layout
		want  string
	}{
		{"twice", place.GPU{Model: b, Busy: at("2g.10gb", 0), Offerable: everything(b)}, at("2g.10gb", 0),
			"both busy and on offer"},
		{"overlap", place.GPU{Model: b, Busy: at("3g.20gb", 0), Offerable: everything(b)}, at("1g.5gb", 2),
			"do not form a legal layout"},
		{"blocked", place.GPU{Model: b, Blocked: 1, Offerable: everything(b)}, at("1g.5gb", 0), "blocked units"},
		{"not offerable", place.GPU{Model: b, Offerable: at("1g.5gb", 0)}, at("1g.5gb", 1), "not among the placements"},
		{"unmanaged", place.GPU{}, 1, "not managed"},
	} {
		err := Plan{Offers: []mig.Layout{c.offer}}.Check([]place.GPU{c.gpu})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}

// TestPackFindsEarlierLayout checks that Pack finds spots for all slices that existed on the node before a restart,
// in whatever order they are given.
func TestPackFindsEarlierLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := mig.Models()[1].Select(mig.Plain)
		layouts := b.Layouts()
		gpus := make([]place.GPU, rapid.IntRange(1, 3).Draw(t, "gpus"))
		var jobs []*Job
		for i := range gpus {
			gpus[i] = place.GPU{Model: b, Offerable: everything(b)}
			for p := range layouts[rapid.IntRange(0, len(layouts)-1).Draw(t, "layout")].Indices() {
				if rapid.Bool().Draw(t, "busy") {
					gpus[i].Busy = gpus[i].Busy.With(p)
				} else {
					want := Want{Profile: b.ProfileOf(p), Count: 1}
					jobs = append(jobs, &Job{ID: uint32(len(jobs) + 1), Wants: []Want{want}})
				}
			}
		}
		jobs = rapid.Permutation(jobs).Draw(t, "order")
		spots, ok := Pack(gpus, jobs)
		if !ok {
			t.Fatal("not found")
		}
		for _, d := range jobs {
			for _, s := range spots[d.ID] {
				if !b.Fits(gpus[s.GPU].Busy, s.Placement) {
					t.Fatalf("job %d: %s overlaps", d.ID, b.Label(s.Placement))
				}
				gpus[s.GPU].Busy = gpus[s.GPU].Busy.With(s.Placement)
			}
		}
	})
}
