package offer

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestEarliestSpotOfAllGPUs compares the earliest spot that firstOfAll keeps for each GPU with a search of all GPUs,
// as the GPUs and the time change.
func TestEarliestSpotOfAllGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCluster(place.Reach, drawNodes(t)...)
		all := slices.Concat(c.Nodes...)
		var names []string
		for _, g := range all {
			for _, p := range c.Pool.GPU(g).Model.Profiles {
				names = append(names, p.Name)
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			k := rapid.SampledFrom(all).Draw(t, "gpu")
			g := c.Pool.GPU(k)
			switch i := rapid.IntRange(0, len(g.Model.Placements)-1).Draw(t, "placement"); {
			case g.Busy.Has(i) && rapid.Bool().Draw(t, "ends"):
				c.Pool.Finish(k, i, false)
			case g.Busy.Has(i):
				c.Pool.Expect(k, i, rapid.Float64Range(0, 9).Draw(t, "end"))
			case (g.Model.Open(g.Busy, g.Blocked) & mig.Layout(0).With(i)) != 0:
				c.Occupy(Spot{GPU: k, Placement: i}, rapid.Float64Range(0, 9).Draw(t, "end"))
			}
			if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
				c.Now = float64(rapid.IntRange(0, 9).Draw(t, "now")) // possibly earlier
			}
			w := Want{Profile: rapid.SampledFrom(names).Draw(t, "profile"), Count: 1}
			if rapid.Bool().Draw(t, "alternative") {
				w.Alternatives = []string{rapid.SampledFrom(names).Draw(t, "other")}
			}
			got, want := c.firstOfAll(w), c.first(all, &Job{Wants: []Want{w}})
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v: %+v, want %+v", w, got, want)
			}
		}
	})
}
