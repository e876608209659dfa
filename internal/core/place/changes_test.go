package place_test

import (
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// TestPoolAfterChanges changes GPUs of a pool at random. After each change, every policy must choose the same placement
// as on a new pool with the same GPUs.
func TestPoolAfterChanges(t *testing.T) {
	small := placetest.PlainA100(t)
	models := []*mig.Model{small, small.WithFull(40960)}
	rapid.Check(t, func(t *rapid.T) {
		gpus := make([]place.GPU, rapid.IntRange(1, 6).Draw(t, "gpus"))
		for k := range gpus {
			gpus[k] = place.GPU{Model: models[rapid.IntRange(0, 1).Draw(t, "model")], Node: k / 2}
		}
		pool := place.NewPool(gpus)
		for range rapid.IntRange(1, 15).Draw(t, "changes") {
			change(t, pool, models)
			for k := range gpus {
				gpus[k] = pool.GPU(k)
			}
			profile := rapid.SampledFrom(models[1].Profiles).Draw(t, "profile").Name
			r := place.Request{Profile: profile, Duration: rapid.Float64Range(0, 9).Draw(t, "duration")}
			for _, name := range place.Names() {
				policy, _ := place.ByName(name)
				got := policy.Choose(&place.Situation{Pool: pool, Now: 3}, r)
				if want := policy.Choose(&place.Situation{Pool: place.NewPool(gpus), Now: 3}, r); got != want {
					t.Fatalf("%s: %+v, on a new pool %+v", name, got, want)
				}
			}
		}
	})
}

// change changes one GPU of the pool.
func change(t *rapid.T, pool *place.Pool, models []*mig.Model) {
	k := rapid.IntRange(0, pool.Len()-1).Draw(t, "gpu")
	g := pool.GPU(k)
	i := rapid.IntRange(0, len(g.Model.Placements)-1).Draw(t, "placement")
	end := rapid.Float64Range(0, 12).Draw(t, "end")
	switch action := rapid.IntRange(0, 5).Draw(t, "action"); {
	case g.Busy.Has(i) && action < 2:
		pool.Expect(k, i, end)
	case g.Busy.Has(i):
		pool.Finish(k, i, action == 2)
	case action == 0:
		pool.Set(k, place.GPU{Model: models[rapid.IntRange(0, 1).Draw(t, "model")], Node: g.Node ^ 1})
	case g.Model.Open(g.Busy, g.Blocked).Has(i):
		pool.Start(k, i, end)
	}
}
