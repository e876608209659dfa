package placetest

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// EveryModel returns every known GPU model three times: with all profiles, with only the plain profiles, and with the
// plain profiles and mig.Full. It also returns models of GPUs without MIG.
var EveryModel = sync.OnceValue(func() []*mig.Model {
	var all []*mig.Model
	for _, b := range mig.Models() {
		plain := b.Select(mig.Plain)
		all = append(all, b, plain, plain.WithFull(0))
	}
	return append(all, WithoutMIG()...)
})

// WithoutMIG returns models of GPUs without MIG: one that can only be full, and others with fractions.
var WithoutMIG = sync.OnceValue(func() (all []*mig.Model) {
	for _, name := range []string{"T4-16GB", "T4-16GB/8", "L40S-48GB/3", "L40S-48GB/4"} {
		b, err := mig.ModelByName(name)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
	}
	return all
})

// DrawGPUs returns one to four random GPUs of one or two GPU models, with busy instances, idle instances and blocked
// units. For some of the GPUs, the expected ends of the busy instances are known.
func DrawGPUs(t *rapid.T) []place.GPU {
	kinds := rapid.SliceOfN(rapid.IntRange(0, len(EveryModel())-1), 1, 2).Draw(t, "boards")
	gpus := make([]place.GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for k := range gpus {
		b := EveryModel()[rapid.SampledFrom(kinds).Draw(t, "board")]
		g := place.GPU{Model: b}
		layout := rapid.SampledFrom(b.Layouts()).Draw(t, "instances")
		for i := range layout.Indices() {
			switch rapid.IntRange(0, 4).Draw(t, "is") {
			case 0:
				g.Idle = g.Idle.With(i)
			case 1:
			case 2, 3, 4:
				g.Busy = g.Busy.With(i)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "blocked") == 0 {
			g.Blocked = 1 << rapid.IntRange(0, b.Grid-1).Draw(t, "unit") &^ b.Occupied(layout)
		}
		if rapid.Bool().Draw(t, "ends") {
			g.Ends = make([]float64, len(b.Placements))
			for i := range g.Ends {
				g.Ends[i] = rapid.SampledFrom([]float64{0, 500, 900, 1000, 1100, 1300, 2000, math.Inf(1)}).
					Draw(t, "end")
			}
		}
		if b.Full() != 0 && rapid.IntRange(0, 2).Draw(t, "full") == 0 {
			g.Busy, g.Idle, g.Blocked, g.Ends = 0, b.Full(), 0, nil
		}
		gpus[k] = g
	}
	return gpus
}

// MustBeLegal checks the GPUs against the oracle's rules.
func MustBeLegal(t TB, what string, gpus []place.GPU) {
	t.Helper()
	for k, g := range gpus {
		if g.Model == nil {
			continue
		}
		o := PlainGPUOf(g)
		if g.Busy&g.Idle != 0 || !o.Legal(slices.Concat(o.Busy, o.Idle)) {
			t.Fatalf("%s: GPU %d has an illegal layout: busy %s, idle %s", what, k,
				g.Model.DrawBeside(g.Busy, g.Blocked), g.Model.Draw(g.Idle))
		}
	}
}

// Drawing returns the output of Draw as a string.
func Drawing(gpus []place.GPU) string {
	var out strings.Builder
	Draw(&out, gpus)
	return out.String()
}

// PlainA100 returns the A100-40GB with its plain profiles.
func PlainA100(t testing.TB) *mig.Model {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	return b.Select(mig.Plain)
}

// PlainAcquisition returns the cheapest way to acquire placement i, or false if this placement is impossible. Unlike
// [place.GPU.AcquisitionOf], it uses no sets of placements.
func PlainAcquisition(g place.GPU, i int) (place.Acquisition, bool) {
	switch b := g.Model; {
	case g.Busy.Has(i) || b.Units(i)&g.Blocked != 0 || !b.Legal(g.Busy.With(i)):
		return 0, false
	case g.Idle.Has(i):
		return place.Reuse, true
	case b.ProfileOf(i) == mig.Full || isFull(g):
		return place.Switch, true
	case b.Legal((g.Busy | g.Idle).With(i)):
		return place.Carve, true
	}
	return place.Reclaim, true
}

// isFull reports whether the GPU has an idle mig.Full instance.
func isFull(g place.GPU) bool {
	for i := range g.Idle.Indices() {
		if g.Model.ProfileOf(i) == mig.Full {
			return true
		}
	}
	return false
}

// TB is the set of methods of rapid.T and testing.T that the tests use.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}
