package preempt

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
)

// drawRoom returns up to three GPUs on up to two nodes with any layouts. Each slice belongs to one of up to eight
// victims, to a job that must not be stopped, or is idle.
func drawRoom(t *rapid.T) Room {
	models := mig.Models()
	var nodes [][]place.GPU
	var victims []Victim
	for range rapid.IntRange(1, 8).Draw(t, "victims") {
		lost := float64(rapid.IntRange(0, 3).Draw(t, "lost"))
		victims = append(victims, Victim{ID: uint32(len(victims) + 1), Lost: lost})
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
					victims[owner].Spots = append(victims[owner].Spots, offer.Spot{GPU: k, Placement: i})
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
	return Room{Cluster: offer.NewCluster(place.Reach, nodes...), Victims: victims}
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
func oracle(r Room, set uint, wants []string) bool {
	for _, on := range r.Cluster.Nodes {
		var gpus []place.GPU
		for _, k := range on {
			g := r.Cluster.Pool.GPU(k)
			for v := range r.Victims {
				for _, at := range r.Victims[v].Spots {
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
func setOf(r Room, ids []uint32) (set uint, lost float64) {
	for v := range r.Victims {
		if slices.Contains(ids, r.Victims[v].ID) {
			set, lost = set|1<<v, lost+r.Victims[v].Lost
		}
	}
	return set, lost
}

// TestCheapest compares the choice for a job with one slice with all subsets of the victims: the chosen set makes room,
// no smaller set does, and no set of the same size that makes room loses less run time.
func TestCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoom(t)
		m := r.Cluster.Pool.GPU(0).Model
		profile := m.Profiles[rapid.IntRange(0, len(m.Profiles)-1).Draw(t, "profile")].Name
		stop, ok := r.Choose(&offer.Job{Wants: []offer.Want{{Profile: profile, Count: 1}}})
		set, lost := setOf(r, stop)
		possible := false
		for other := range uint(1) << len(r.Victims) {
			if !oracle(r, other, []string{profile}) {
				continue
			}
			possible = true
			var ids []uint32
			for v := range r.Victims {
				if other>>v&1 == 1 {
					ids = append(ids, r.Victims[v].ID)
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
		r := drawRoom(t)
		m := r.Cluster.Pool.GPU(0).Model
		profile := m.Profiles[rapid.IntRange(0, len(m.Profiles)-1).Draw(t, "profile")].Name
		count := rapid.IntRange(2, 3).Draw(t, "count")
		wants := slices.Repeat([]string{profile}, count)
		job := &offer.Job{Wants: []offer.Want{{Profile: profile, Count: count}}}
		stop, ok := r.Choose(job)
		if set, _ := setOf(r, stop); ok && !oracle(r, set, wants) {
			t.Fatalf("%d x %s: stopped %v without making room", count, profile, stop)
		}
		for _, id := range stop {
			kept := slices.DeleteFunc(slices.Clone(r.Victims), func(v Victim) bool {
				return v.ID == id || !slices.Contains(stop, v.ID)
			})
			if less, ok := (Room{Cluster: r.Cluster, Victims: kept}).Choose(job); ok {
				t.Fatalf("%d x %s: stopped %v, but %v suffice", count, profile, stop, less)
			}
		}
	})
}
