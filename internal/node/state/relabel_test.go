package state

import (
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
)

// arrangements calls each for the units that are used in every arrangement of the profiles beside the used units.
func arrangements(m *mig.Model, used uint64, profiles []int, each func(used uint64)) {
	if len(profiles) == 0 {
		each(used)
		return
	}
	for p := range m.OfProfile(profiles[0]).Indices() {
		if m.Units(p)&used == 0 {
			arrangements(m, used|m.Units(p), profiles[1:], each)
		}
	}
}

// TestPack compares pack with a search of all arrangements: it finds one whenever there is any, and without obstacles,
// none leaves more placements free.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := mig.Fractions("NVIDIA L40S", 46068, rapid.IntRange(2, 9).Draw(t, "units"))
		if err != nil {
			t.Fatal(err)
		}
		var fixed uint64
		for _, p := range rapid.SliceOfN(rapid.IntRange(0, len(m.Placements)-1), 0, 2).Draw(t, "fixed") {
			fixed |= m.Units(p)
		}
		profiles := rapid.SliceOfN(rapid.IntRange(0, len(m.Profiles)-1), 0, 6).Draw(t, "profiles")
		best := -1
		arrangements(m, fixed, profiles, func(used uint64) { best = max(best, free(m, used)) })
		at, packed, ok := pack(m, fixed, profiles)
		if ok != (best >= 0) {
			t.Fatalf("%v beside %b: ok %v, the search finds %d free placements", profiles, fixed, ok, best)
		}
		if !ok {
			return
		}
		used := fixed
		for k, p := range at {
			if used&m.Units(p) != 0 || m.Placements[p].Profile != profiles[k] {
				t.Fatalf("%v beside %b: placements %v", profiles, fixed, at)
			}
			used |= m.Units(p)
		}
		if used != packed || fixed == 0 && free(m, used) != best {
			t.Errorf("%v: %b leaves %d placements, want %d", profiles, used, free(m, used), best)
		}
	})
}
