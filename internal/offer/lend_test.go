package offer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/mig"
	"caelum/internal/place"
)

// TestLendSound checks plans for jobs that lack something else on some nodes: the plan can be carved, the slices of
// every planned job are on offer, no two jobs have the same slice, the kept room is lent only to jobs that end before,
// and the pool is unchanged afterwards.
func TestLendSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		gpus := slices.Concat(nodes...)
		jobs := drawDemands(t, gpus)
		for _, j := range jobs {
			j.TimeLimit = float64(rapid.IntRange(1, 300).Draw(t, "limit"))
			j.RunTime = j.TimeLimit
			for n := range nodes {
				if rapid.IntRange(0, 2).Draw(t, "lacks") > 0 {
					continue
				}
				j.DeferredNodes = append(j.DeferredNodes, n)
				switch rapid.IntRange(0, 2).Draw(t, "when") {
				case 0:
					j.NoOfferNodes = append(j.NoOfferNodes, n)
				case 1:
					j.ReadyAt = map[int]float64{n: float64(rapid.IntRange(0, 180).Draw(t, "ready"))}
				default:
					j.FreedAt = map[int]float64{n: float64(rapid.IntRange(0, 500).Draw(t, "after"))}
				}
			}
		}
		cl := NewCluster(place.Reach, nodes...)
		var before []place.GPU
		for k := range cl.Pool.Len() {
			before = append(before, cl.Pool.GPU(k))
		}
		p := Make(cl, jobs, false)
		if err := p.Check(gpus); err != nil {
			t.Fatal(err)
		}
		owner := map[Spot]uint32{}
		planned := map[int]mig.Layout{}
		for k, spots := range p.Spots {
			for _, s := range spots {
				if by := owner[s]; by != 0 || !p.Offers[s.GPU].Has(s.Placement) ||
					!gpus[s.GPU].Model.Fits(gpus[s.GPU].Busy|planned[s.GPU], s.Placement) {
					t.Fatalf(
						"job %d is planned at %v; job %d is there, on offer are %s",
						jobs[k].ID,
						s,
						by,
						gpus[s.GPU].Model.List(p.Offers[s.GPU]),
					)
				}
				owner[s], planned[s.GPU] = jobs[k].ID, planned[s.GPU].With(s.Placement)
			}
		}
		if r := p.Kept; r != nil && p.Spots[r.Job] == nil {
			for _, kept := range r.Spots {
				b := gpus[kept.GPU].Model
				for k, spots := range p.Spots {
					for _, s := range spots {
						overlap := s.GPU == kept.GPU && b.Units(s.Placement)&b.Units(kept.Placement) != 0
						if overlap && jobs[k].TimeLimit > r.At && !math.IsInf(r.At, 1) {
							t.Fatalf(
								"job %d ends at %v and has room that is kept from %v",
								jobs[k].ID,
								jobs[k].TimeLimit,
								r.At,
							)
						}
					}
				}
			}
		}
		for k := range before {
			if after := cl.Pool.GPU(k); after.Busy != before[k].Busy || after.Idle != before[k].Idle ||
				after.Blocked != before[k].Blocked {
				t.Fatalf("GPU %d: %+v was %+v", k, after, before[k])
			}
		}
	})
}
