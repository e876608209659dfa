package offer

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// drawLinked returns the GPUs of a node with NVLink groups. Some GPUs are full, some have busy slices, and the others
// have MIG mode on.
func drawLinked(t *rapid.T) []place.GPU {
	h100, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	m := h100.Select(mig.Plain).WithFull(80 << 10)
	gpus := make([]place.GPU, rapid.IntRange(1, 8).Draw(t, "gpus"))
	for k := range gpus {
		gpus[k] = place.GPU{Model: m, Offerable: everything(m), NVLink: rapid.IntRange(0, 3).Draw(t, "group")}
		switch rapid.IntRange(0, 5).Draw(t, "state") {
		case 0:
			gpus[k].Hold(0, float64(100*rapid.IntRange(1, 3).Draw(t, "end")))
		case 1, 2:
			gpus[k].Idle = m.Full()
		}
	}
	return gpus
}

// pairs returns the number of pairs connected by NVLinks in a set (a bit for each GPU).
func pairs(gpus []place.GPU, set uint) (n int) {
	for a := range gpus {
		for b := range a {
			if set>>a&1 != 0 && set>>b&1 != 0 && gpus[a].NVLink != 0 && gpus[a].NVLink == gpus[b].NVLink {
				n++
			}
		}
	}
	return n
}

// bestSet compares all sets of n of the GPUs in free, and returns the cost of the best one: the connected pairs in
// the set (negative), the number of switches, and the connected pairs of the other free GPUs (negative).
func bestSet(gpus []place.GPU, free uint, n int) (best []int) {
	for set := range uint(1) << len(gpus) {
		if set&^free == 0 && bits.OnesCount(set) == n {
			if c := setCost(gpus, free, set); best == nil || slices.Compare(c, best) < 0 {
				best = c
			}
		}
	}
	return best
}

func setCost(gpus []place.GPU, free, set uint) []int {
	switches := 0
	for k, g := range gpus {
		if set>>k&1 != 0 && g.Idle != g.Model.Full() {
			switches++
		}
	}
	return []int{-pairs(gpus, set), switches, -pairs(gpus, free&^set)}
}

func maskOf(spots []Spot) (set uint) {
	for _, s := range spots {
		set |= 1 << s.GPU
	}
	return set
}

// TestConnected compares the sets that a cluster finds for jobs with several full GPUs with a search of all sets.
func TestConnected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawLinked(t)
		n := rapid.IntRange(2, 5).Draw(t, "wanted")
		free := uint(0)
		for k, g := range gpus {
			if g.Busy == 0 {
				free |= 1 << k
			}
		}
		c := NewCluster(policyOf(t), gpus)
		j := &Job{ID: 1, RunTime: 100, TimeLimit: 100, Wants: []Want{{Profile: mig.Full, Count: n}}}
		spots, _ := c.Find(j, nil)
		best := bestSet(gpus, free, n)
		if (spots == nil) != (best == nil) {
			t.Fatalf("found %v; the best set has the cost %v", spots, best)
		}
		if spots != nil {
			if got := setCost(gpus, free, maskOf(spots)); c.linked && slices.Compare(got, best) != 0 {
				t.Fatalf("found %v with the cost %v; the best set has the cost %v", spots, got, best)
			}
			return
		}
		// The reservation has the best set of the GPUs that are free at its beginning.
		r := c.Reserve(j, place.Choice{})
		if math.IsInf(r.At, 1) {
			return
		}
		for k, g := range gpus {
			if g.Busy != 0 && c.Pool.FreeAt(k, fullPlacement(g.Model)) <= r.At {
				free |= 1 << k
			}
		}
		if got := setCost(gpus, free, maskOf(r.Spots)); c.linked && slices.Compare(got, bestSet(gpus, free, n)) != 0 {
			t.Fatalf("reserved %v with the cost %v; the best set has the cost %v", r.Spots, got, bestSet(gpus, free, n))
		}
	})
}

func policyOf(t *rapid.T) place.Policy {
	p, err := place.ByName(rapid.SampledFrom([]string{"lifetime", "reach", "first-fit", "best-fit"}).Draw(t, "policy"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSpare checks that a slice or a single full GPU does not use a connected GPU if another one in the same state is
// less connected, and that NVLinks have no influence on that state.
func TestSpare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawLinked(t)
		apart := slices.Clone(gpus)
		for k := range apart {
			apart[k].NVLink = 0
		}
		m := gpus[0].Model
		p := rapid.SampledFrom(m.Profiles).Draw(t, "profile")
		j := &Job{ID: 1, RunTime: 100, TimeLimit: 100, Wants: []Want{{Profile: p.Name, Count: 1}}}
		policy := policyOf(t)
		spots, _ := NewCluster(policy, gpus).Find(j, nil)
		plain, _ := NewCluster(policy, apart).Find(j, nil)
		if len(spots) != len(plain) {
			t.Fatalf("found %v with NVLinks and %v without NVLinks", spots, plain)
		}
		if len(spots) == 0 {
			return
		}
		used, like := gpus[spots[0].GPU], gpus[plain[0].GPU]
		if used.Busy != like.Busy || used.Idle != like.Idle || spots[0].Placement != plain[0].Placement {
			t.Fatalf("found %v with NVLinks and %v without NVLinks", spots, plain)
		}
		free := uint(0)
		for k, g := range gpus {
			if g.Busy == 0 {
				free |= 1 << k
			}
		}
		for k, g := range gpus {
			if g.Busy == 0 && used.Busy == 0 && g.Idle == used.Idle &&
				pairs(gpus, free&^(1<<k)) > pairs(gpus, free&^maskOf(spots)) {
				t.Fatalf("%v: on GPU %d, the slice would leave more connected pairs", spots, k)
			}
		}
	})
}
