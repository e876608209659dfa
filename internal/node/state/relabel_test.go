package state

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/node/ledger"
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

// TestReserve checks that the units of a growth are not used until a starting job needs them, and that no fraction of
// the GPU moves meanwhile.
func TestReserve(t *testing.T) {
	m, err := mig.Fractions("NVIDIA L40S", 46068, 4)
	if err != nil {
		t.Fatal(err)
	}
	c := &Card{GPU: inventory.GPU{GPU: gpu.GPU{Model: m}}, Ours: map[int]*Instance{}}
	at := func(start int, job uint32) *Instance {
		p, _ := m.Placement("1f.11gb", start)
		in := ledger.Instance{GI: -2 - start, Profile: "1f.11gb", Start: start, Size: 1, Job: job}
		c.Ours[p] = &Instance{Instance: in}
		return c.Ours[p]
	}
	at(0, 1)
	at(2, 0)
	n := &Node{Cards: []*Card{c}, Pending: map[uint32]*PendingLease{}, Now: time.Now}
	n.Offers = []mig.Layout{0}
	moves := func(growth *Growth) bool {
		n.Lock()
		defer n.Unlock()
		_, _, ok := n.Repack(0, growth)
		return ok
	}
	growth := &Growth{Instance: at(3, 2), Profile: "2f.22gb"}
	if !moves(nil) || moves(growth) {
		t.Error("without a reservation, no fraction moves, or one grows")
	}
	for name, starts := range map[string]func(){
		"without spots": func() { n.TakeOffers(9, 0, []offer.Want{{Profile: "1f.11gb", Count: 1}}) },
		"forgotten":     func() { n.Pending[9] = new(PendingLease); n.Forget(9); delete(n.Pending, 9) },
	} {
		if !n.Reserve(growth) || moves(nil) || !moves(growth) {
			t.Errorf("%s: the growth has no reservation", name)
		}
		if g := n.View()[0]; g.Blocked != 0b0110 || g.Idle != 0 {
			t.Errorf("%s: %+v", name, g)
		}
		if starts(); n.Growing != nil || moves(growth) || n.View()[0].Blocked != 0 {
			t.Errorf("%s: the reservation remains", name)
		}
	}
}
