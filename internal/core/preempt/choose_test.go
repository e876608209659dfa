package preempt

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// drawSearch returns up to three GPUs on up to two nodes with any layouts. Each slice belongs to one of up to eight
// victims, to a job that must not be stopped, or is idle.
func drawSearch(t *rapid.T) victimSearch {
	models := append(mig.Models(), placetest.WithoutMIG()...)
	var nodes [][]place.GPU
	var victims []victim
	for range rapid.IntRange(1, 8).Draw(t, "victims") {
		lost := float64(rapid.IntRange(0, 3).Draw(t, "lost"))
		victims = append(victims, victim{id: uint32(len(victims) + 1), lost: lost})
	}
	k := 0
	for range rapid.IntRange(1, 2).Draw(t, "nodes") {
		var gpus []place.GPU
		for range rapid.IntRange(1, 2).Draw(t, "gpus") {
			m := models[rapid.IntRange(0, len(models)-1).Draw(t, "model")]
			if rapid.Bool().Draw(t, "plain") {
				m = m.Select(mig.Plain)
			}
			layouts := m.Maximal()
			g := place.GPU{Model: m}
			for p := range m.Profiles {
				g.Offerable |= m.OfProfile(p)
			}
			for i := range layouts[rapid.IntRange(0, len(layouts)-1).Draw(t, "layout")].Indices() {
				switch owner := rapid.IntRange(-3, len(victims)-1).Draw(t, "owner"); {
				case owner >= 0:
					victims[owner].spots = append(victims[owner].spots, offer.Spot{GPU: k, Placement: i})
					g.Busy = g.Busy.With(i)
				case owner == -1:
					g.Busy = g.Busy.With(i)
				case owner == -2:
					g.Blocked |= m.Units(i)
				}
			}
			gpus, k = append(gpus, g), k+1
		}
		nodes = append(nodes, gpus)
	}
	return victimSearch{cluster: offer.NewCluster(place.Reach, nodes...), victims: victims}
}

// legal reports whether the slices of a request fit on the GPUs beside the remaining slices, by trying all placements.
func legal(gpus []place.GPU, wants []string) bool {
	if len(wants) == 0 {
		return true
	}
	for k, g := range gpus {
		p, ok := g.Model.ProfileIndex(wants[0])
		if !ok {
			continue
		}
		for i := range g.Model.OfProfile(p).Indices() {
			if g.Model.Legal(g.Busy.With(i)) && !g.Busy.Has(i) && g.Model.Units(i)&g.Blocked == 0 {
				rest := slices.Clone(gpus)
				rest[k].Busy = g.Busy.With(i)
				if legal(rest, wants[1:]) {
					return true
				}
			}
		}
	}
	return false
}

// oracle reports whether the request fits on one of the nodes if the victims in the set are stopped.
func oracle(r victimSearch, set uint, wants []string) bool {
	for _, on := range r.cluster.Nodes {
		var gpus []place.GPU
		for _, k := range on {
			g := r.cluster.Pool.GPU(k)
			for v := range r.victims {
				for _, at := range r.victims[v].spots {
					if set>>v&1 == 1 && at.GPU == k {
						g.Busy = g.Busy.Without(at.Placement)
					}
				}
			}
			gpus = append(gpus, g)
		}
		if legal(gpus, wants) {
			return true
		}
	}
	return false
}

// setOf returns the set of the victims with these ids, and the run time that they lose.
func setOf(r victimSearch, ids []uint32) (set uint, lost float64) {
	for v := range r.victims {
		if slices.Contains(ids, r.victims[v].id) {
			set, lost = set|1<<v, lost+r.victims[v].lost
		}
	}
	return set, lost
}

// TestCheapest compares the choice for a job with one slice with all subsets of the victims: the chosen set makes room,
// no smaller set does, and no set of the same size that makes room loses less run time.
func TestCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawSearch(t)
		m := r.cluster.Pool.GPU(0).Model
		profile := m.Profiles[rapid.IntRange(0, len(m.Profiles)-1).Draw(t, "profile")].Name
		stop, ok := r.choose(&offer.Job{Wants: []offer.Want{{Profile: profile, Count: 1}}})
		set, lost := setOf(r, stop)
		possible := false
		for other := range uint(1) << len(r.victims) {
			if !oracle(r, other, []string{profile}) {
				continue
			}
			possible = true
			var ids []uint32
			for v := range r.victims {
				if other>>v&1 == 1 {
					ids = append(ids, r.victims[v].id)
				}
			}
			_, cost := setOf(r, ids)
			if n := bits.OnesCount(other); ok && (n < len(stop) || n == len(stop) && cost < lost) {
				t.Fatalf("%s: stopped %v (lost %v), but %v (lost %v) suffice", profile, stop, lost, ids, cost)
			}
		}
		if ok != possible || ok && !oracle(r, set, []string{profile}) {
			t.Fatalf("%s: stopped %v, %v; possible: %v", profile, stop, ok, possible)
		}
	})
}

// TestNecessary checks that the choice for a job with several slices makes room, and that every job in it is necessary.
func TestNecessary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawSearch(t)
		m := r.cluster.Pool.GPU(0).Model
		profile := m.Profiles[rapid.IntRange(0, len(m.Profiles)-1).Draw(t, "profile")].Name
		count := rapid.IntRange(2, 3).Draw(t, "count")
		wants := slices.Repeat([]string{profile}, count)
		job := &offer.Job{Wants: []offer.Want{{Profile: profile, Count: count}}}
		stop, ok := r.choose(job)
		if set, _ := setOf(r, stop); ok && !oracle(r, set, wants) {
			t.Fatalf("%d x %s: stopped %v without making room", count, profile, stop)
		}
		for _, id := range stop {
			kept := slices.DeleteFunc(slices.Clone(r.victims), func(v victim) bool {
				return v.id == id || !slices.Contains(stop, v.id)
			})
			if less, ok := (victimSearch{cluster: r.cluster, victims: kept}).choose(job); ok {
				t.Fatalf("%d x %s: stopped %v, but %v suffice", count, profile, stop, less)
			}
		}
	})
}
