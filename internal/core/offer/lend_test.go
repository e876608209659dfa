package offer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestLendSound checks random plans for jobs that lack resources other than slices on some nodes. All offers of a plan
// must fit together, the slices of every planned job must be offered, and no two jobs may have the same slice. Kept
// spots may be lent only to jobs that end in time. Planning must not change the pool.
func TestLendSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		gpus := slices.Concat(nodes...)
		jobs := drawDemands(t, gpus)
		for _, j := range jobs {
			drawLacking(t, j, len(nodes))
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
		mustHaveOwnOffers(t, gpus, jobs, p)
		mustLendInTime(t, gpus, jobs, p)
		for k := range before {
			if after := cl.Pool.GPU(k); after.Busy != before[k].Busy || after.Idle != before[k].Idle ||
				after.Blocked != before[k].Blocked {
				t.Fatalf("GPU %d: %+v was %+v", k, after, before[k])
			}
		}
	})
}

// drawLacking gives a job a random time limit, and random nodes on which it lacks resources other than slices.
func drawLacking(t *rapid.T, j *Job, nodes int) {
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

// mustHaveOwnOffers checks that the spots of each planned job are free and offered, and that no two jobs share a spot.
func mustHaveOwnOffers(t *rapid.T, gpus []place.GPU, jobs []*Job, p Plan) {
	owner := map[Spot]uint32{}
	planned := map[int]mig.Layout{}
	for k, spots := range p.Spots {
		for _, s := range spots {
			b := gpus[s.GPU].Model
			if by := owner[s]; by != 0 || !p.Offers[s.GPU].Has(s.Placement) ||
				!b.Fits(gpus[s.GPU].Busy|planned[s.GPU], s.Placement) {
				t.Fatalf("job %d is planned at %v; job %d is there, on offer are %s", jobs[k].ID, s, by,
					b.List(p.Offers[s.GPU]))
			}
			owner[s], planned[s.GPU] = jobs[k].ID, planned[s.GPU].With(s.Placement)
		}
	}
}

// mustLendInTime checks that the jobs on lent spots end before the spots are needed.
func mustLendInTime(t *rapid.T, gpus []place.GPU, jobs []*Job, p Plan) {
	r := p.Kept
	if r == nil || p.Spots[r.Job] != nil || math.IsInf(r.At, 1) {
		return
	}
	for _, kept := range r.Spots {
		b := gpus[kept.GPU].Model
		for k, spots := range p.Spots {
			for _, s := range spots {
				overlap := s.GPU == kept.GPU && b.Units(s.Placement)&b.Units(kept.Placement) != 0
				if overlap && jobs[k].TimeLimit > r.At {
					t.Fatalf("job %d ends at %v and has room that is kept from %v", jobs[k].ID, jobs[k].TimeLimit, r.At)
				}
			}
		}
	}
}
