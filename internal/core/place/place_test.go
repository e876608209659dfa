package place_test

import (
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

func drawGPU(t *rapid.T) place.GPU {
	b := rapid.SampledFrom(placetest.EveryModel()).Draw(t, "board")
	g := place.GPU{Model: b}
	if b.Full() != 0 && rapid.IntRange(0, 2).Draw(t, "full") == 0 {
		g.Idle = b.Full()
		return g
	}
	all := rapid.SampledFrom(b.Layouts()).Draw(t, "instances")
	for i := range all.Indices() {
		if rapid.Bool().Draw(t, "idle") {
			g.Idle = g.Idle.With(i)
		} else {
			g.Busy = g.Busy.With(i)
		}
	}
	g.Blocked = rapid.Uint64Range(0, 1<<b.Grid-1).Draw(t, "blocked") &^ b.Occupied(all)
	return g
}

func TestAcquisition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGPU(t)
		for i := range g.Model.Placements {
			got, ok := g.AcquisitionOf(i)
			want, wantOK := placetest.PlainAcquisition(g, i)
			if got != want || ok != wantOK {
				t.Errorf("%s alongside %s, idle %s: %v %v, want %v %v", g.Model.Label(i),
					g.Model.DrawBeside(g.Busy, g.Blocked), g.Model.Draw(g.Idle), got, ok, want, wantOK)
			}
			if !ok {
				continue
			}
			gone := g.InTheWay(i)
			destroys := got == place.Reclaim || got == place.Switch && g.Idle != 0
			if (gone != 0) != destroys || gone&^g.Idle != 0 {
				t.Errorf("%s by %v destroys %s", g.Model.Label(i), got, g.Model.List(gone))
			}
			if !g.Model.Legal((g.Busy | g.Idle&^gone).With(i)) {
				t.Errorf("%s does not fit without %s", g.Model.Label(i), g.Model.List(gone))
			}
			for j := range gone.Indices() {
				if g.Model.Legal((g.Busy | g.Idle&^gone.Without(j)).With(i)) {
					t.Errorf("%s is not in the way of %s", g.Model.Label(j), g.Model.Label(i))
				}
			}
		}
	})
}

// TestPoliciesChooseCheapestAcquisition checks that every policy chooses a possible placement, and finds one whenever
// one exists. It must have the lowest acquisition cost, except with the policies that use expected ends or compare
// fragmentation first.
func TestPoliciesChooseCheapestAcquisition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.SliceOfN(rapid.Custom(drawGPU), 0, 4).Draw(t, "gpus")
		some := rapid.SampledFrom(placetest.EveryModel()).Draw(t, "profile of")
		if len(gpus) > 0 {
			some = gpus[0].Model
		}
		profile := rapid.SampledFrom(some.Profiles).Draw(t, "profile").Name
		cheapest, any := place.Switch+1, false
		for _, g := range gpus {
			for i, pl := range g.Model.Placements {
				if m, ok := placetest.PlainAcquisition(g, i); ok && g.Model.Profiles[pl.Profile].Name == profile {
					cheapest, any = min(cheapest, m), true
				}
			}
		}
		for _, name := range place.Names() {
			policy, err := place.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			s := &place.Situation{Pool: place.NewPool(gpus)}
			c := policy.Choose(s, place.Request{Profile: profile, Duration: 3600})
			// grmu does not use some GPUs for some profiles. The other policies find a placement whenever one exists.
			if found := c.Verdict == place.Here; found != any && (found || name != "grmu") {
				t.Fatalf("%s: found %v, want %v", name, found, any)
			}
			if c.Verdict != place.Here {
				continue
			}
			k, i := c.GPU, c.Placement
			first := name != "grmu" && name != "fragaware" && name != "lifetime"
			if m, had := placetest.PlainAcquisition(gpus[k], i); !had || first && m != cheapest ||
				name != "grmu" && m == place.Switch && cheapest != place.Switch ||
				gpus[k].Model.Profiles[gpus[k].Model.Placements[i].Profile].Name != profile {
				t.Errorf("%s chose %s on GPU %d by %v (%v); %s was available by %v", name,
					gpus[k].Model.Label(i), k, m, had, profile, cheapest)
			}
		}
	})
}

// TestMostReachKeepsTheProduct checks with several GPUs that no other candidate leaves the cluster a larger reach,
// which is the product of its GPUs' reaches.
func TestMostReachKeepsTheProduct(t *testing.T) {
	a100, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	a100 = a100.Select(mig.Plain)
	rapid.Check(t, func(t *rapid.T) {
		var gpus []place.GPU
		for range rapid.IntRange(1, 4).Draw(t, "gpus") {
			gpus = append(gpus, place.GPU{Model: a100, Busy: rapid.SampledFrom(a100.Layouts()).Draw(t, "layout")})
		}
		p := rapid.IntRange(0, len(a100.Profiles)-1).Draw(t, "profile")
		product := func(k, i int) int {
			n := 1
			for m, g := range gpus {
				l := g.Busy
				if m == k {
					l = l.With(i)
				}
				n *= a100.ReachBeside(l, 0)
			}
			return n
		}
		s := &place.Situation{Pool: place.NewPool(gpus)}
		c := place.Reach.Choose(s, place.Request{Profile: a100.Profiles[p].Name})
		k, i, ok := c.GPU, c.Placement, c.Verdict == place.Here
		for m, g := range gpus {
			for j := range (a100.Open(g.Busy, 0) & a100.OfProfile(p)).Indices() {
				if !ok || product(m, j) > product(k, i) {
					t.Errorf(
						"%s on GPU %d leaves the cluster a reach of %d; chosen: %v, GPU %d",
						a100.Label(j),
						m,
						product(m, j),
						ok,
						k,
					)
				}
			}
		}
	})
}

func TestParameters(t *testing.T) {
	for name, want := range map[string]string{
		"fragaware=0.6": "",
		"grmu=1":        "",
		"grmu=0":        "",
		"best-fit=0.4":  `placement policy "best-fit=0.4": best-fit takes no parameter; write best-fit`,
		"grmu=30%":      `placement policy "grmu=30%": the share must be from 0 to 1, as in grmu=0.4`,
		"fragaware=1.1": `placement policy "fragaware=1.1": the share must be from 0 to 1, as in fragaware=0.4`,
		"fragaware=NaN": `placement policy "fragaware=NaN": the share must be from 0 to 1, as in fragaware=0.4`,
		"fragaware=":    `placement policy "fragaware=": the share must be from 0 to 1, as in fragaware=0.4`,
	} {
		p, err := place.ByName(name)
		if (p == nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, %v, want %s", name, p, err, want)
		}
	}
	if p, _ := place.ByName("fragaware=0.6"); p != (place.FragAware{0.6}) {
		t.Errorf("fragaware=0.6 is %v", p)
	}
}
