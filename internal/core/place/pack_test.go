package place_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// plainPack tries every profile, in the given order, on every GPU at every start, and reports whether all profiles fit.
func plainPack(gpus []placetest.PlainGPU, profiles []string) bool {
	if len(profiles) == 0 {
		return true
	}
	for k, o := range gpus {
		for _, x := range placetest.Every(o.Model) {
			if o.Model.Profiles[x.Profile].Name == profiles[0] && o.Fits(o.Busy, x) {
				then := slices.Clone(gpus)
				then[k].Busy = placetest.With(o.Busy, x)
				if plainPack(then, profiles[1:]) {
					return true
				}
			}
		}
	}
	return false
}

func TestPackAgainstOracle(t *testing.T) {
	answers := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		gpus = gpus[:min(len(gpus), 2)]
		var profiles []string
		for range rapid.IntRange(0, 4).Draw(t, "instances") {
			b := gpus[rapid.IntRange(0, len(gpus)-1).Draw(t, "of")].Model
			profiles = append(profiles, b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")].Name)
		}
		var plain []placetest.PlainGPU
		for _, g := range gpus {
			plain = append(plain, placetest.PlainGPUOf(g))
		}
		at, ok := place.Pack(gpus, profiles)
		if want := plainPack(plain, profiles); ok != want {
			t.Fatalf("%v: %v, want %v\n%s", profiles, ok, want, placetest.Drawing(gpus))
		}
		answers[ok]++
		if ok {
			mustHold(t, gpus, profiles, at)
		}
	})
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("answers: %v", answers)
	}
}

// mustHold checks that the spots that Pack returned are legal, regardless of idle instances.
func mustHold(t placetest.TB, gpus []place.GPU, profiles []string, at []place.Spot) {
	t.Helper()
	after := slices.Clone(gpus)
	for n, s := range at {
		g := &after[s.GPU]
		if pl := g.Model.Placements[s.Placement]; g.Model.Profiles[pl.Profile].Name != profiles[n] ||
			g.Busy.Has(s.Placement) {
			t.Fatalf("%s is at %s, GPU %d", profiles[n], g.Model.Label(s.Placement), s.GPU)
		}
		g.Busy, g.Idle = g.Busy.With(s.Placement), 0
	}
	placetest.MustBeLegal(t, fmt.Sprint(profiles), after)
}

// TestPackOfLargeNode checks Pack with exactly as many instances as fit on 16 GPUs, and with one instance more. A
// search that tries all placements takes too long.
func TestPackOfLargeNode(t *testing.T) {
	b := placetest.PlainA100(t)
	var gpus []place.GPU
	var fits []string
	for range 16 {
		gpus = append(gpus, place.GPU{Model: b})
		fits = append(fits, "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")
	}
	at, ok := place.Pack(gpus, fits)
	if !ok {
		t.Fatal("16 times 3g 2g 1g 1g: no room")
	}
	mustHold(t, gpus, fits, at)
	if _, ok := place.Pack(gpus, append(fits, "2g.10gb")); ok {
		t.Error("room for another 2g.10gb, but each GPU has 7 compute slices")
	}
	var full []string // 4g, 2g and 1g together use all 7 compute slices of a GPU
	for range 16 {
		full = append(full, "4g.20gb", "2g.10gb", "1g.5gb")
	}
	if _, ok := place.Pack(gpus, full); !ok {
		t.Error("16 times 4g 2g 1g: no room")
	}
	if _, ok := place.Pack(gpus, append(full, "1g.5gb")); ok {
		t.Error("room for a 1g.5gb alongside 16 times 4g 2g 1g")
	}
}
