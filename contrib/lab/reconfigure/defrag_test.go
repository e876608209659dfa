package reconfigure

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// busyInstances returns the sorted profiles of the busy instances on all GPUs, and their spots.
func busyInstances(gpus []place.GPU) (profiles []string, at map[place.Spot]bool) {
	at = map[place.Spot]bool{}
	for k, g := range gpus {
		for i := range g.Busy.Indices() {
			profiles = append(profiles, g.Model.Profiles[g.Model.Placements[i].Profile].Name)
			at[spot(k, i)] = true
		}
	}
	slices.Sort(profiles)
	return profiles, at
}

// totalFrag returns the sum of the GPUs' fragmentation, as defined by the oracle.
func totalFrag(gpus []place.GPU) float64 {
	sum := 0.0
	for _, g := range gpus {
		o := placetest.PlainGPUOf(g)
		sum += o.Frag(o.Busy)
	}
	return sum
}

// mustKeepJobs checks that the same instances are busy after a plan of moves, that no instance in stay was moved, and
// that no job was stopped twice. It returns the GPUs after the plan.
func mustKeepJobs(t placetest.TB, gpus []place.GPU, stay []place.Spot, plan Plan) []place.GPU {
	after := carryOut(t, gpus, plan)
	was, _ := busyInstances(gpus)
	is, at := busyInstances(after)
	if !slices.Equal(was, is) {
		t.Fatalf("%v: busy before: %v, after: %v", plan, was, is)
	}
	for _, s := range stay {
		if !at[s] {
			label := gpus[s.GPU].Model.Label(s.Placement)
			t.Fatalf("%v: %s on GPU %d must stay and has moved", plan, label, s.GPU)
		}
	}
	stopped := map[int]int{}
	for _, s := range plan {
		if s.Do == Destroy && s.Job != NoJob {
			if stopped[s.Job]++; stopped[s.Job] > 1 {
				t.Fatalf("%v: job %d moves twice", plan, s.Job)
			}
		}
	}
	return after
}

func TestAfterDeparture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		stay := drawStay(t, gpus)
		k := rapid.IntRange(0, len(gpus)-1).Draw(t, "gpu")
		threshold := rapid.SampledFrom([]float64{0, 0.4, 0.7}).Draw(t, "threshold")
		plan := AfterDeparture(place.NewPool(gpus), k, threshold, allBut(gpus, stay...))
		busy := func(g place.GPU) bool {
			o := placetest.PlainGPUOf(g)
			return float64(g.Model.Grid-o.FreeUnits(o.Busy)) >= threshold*float64(g.Model.Grid)
		}
		load := func(g place.GPU) float64 {
			o := placetest.PlainGPUOf(g)
			return 1 - float64(o.FreeUnits(o.Busy))/float64(g.Model.Grid)
		}
		// Every move must reduce fragmentation, and its target must be GPU k. If GPU k is busy, the source must be
		// GPU k too. Otherwise, it must be another GPU, and GPU k's load after the move must be less than the
		// source's before it.
		now := gpus
		for n, from := 0, 0; n < len(plan); n++ {
			if plan[n].Do == Destroy {
				continue
			}
			after := carryOut(t, now, plan[from:n+1])
			if totalFrag(after) >= totalFrag(now) {
				t.Fatalf("%v: fragmentation from %v to %v", plan[from:n+1], totalFrag(now), totalFrag(after))
			}
			source := plan[from].GPU
			if source != k && load(after[k]) >= load(now[source])-1e-9 {
				t.Fatalf(
					"%v: the loads %v and %v become %v and %v",
					plan[from:n+1],
					load(now[source]),
					load(now[k]),
					load(after[source]),
					load(after[k]),
				)
			}
			if plan[n].GPU != k || (source == k) != busy(now[k]) || !busy(now[source]) {
				t.Fatalf("%v, after a job has left GPU %d", plan[from:n+1], k)
			}
			now, from = after, n+1
		}
		after := mustKeepJobs(t, gpus, stay, plan)
		if len(plan) == 0 {
			return
		}
		if totalFrag(after) >= totalFrag(gpus) {
			t.Fatalf("%v: fragmentation from %v to %v", plan, totalFrag(gpus), totalFrag(after))
		}
	})
}

// TestAfterDepartureTakesTheBest checks that no other move within a busy GPU reduces fragmentation more than the
// plan's first move.
func TestAfterDepartureTakesTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)[:1]
		plan := AfterDeparture(place.NewPool(gpus), 0, 0, allBut(gpus))
		first := len(plan)
		if n := slices.IndexFunc(plan, func(s Step) bool { return s.Do != Destroy }); n >= 0 {
			first = n + 1
		}
		left := totalFrag(carryOut(t, gpus, plan[:first]))
		o := placetest.PlainGPUOf(gpus[0])
		for n, x := range o.Busy {
			rest := slices.Delete(slices.Clone(o.Busy), n, n+1)
			for _, y := range placetest.Every(o.Model) {
				if y.Profile != x.Profile || !o.Fits(rest, y) {
					continue
				}
				if frag := o.Frag(placetest.With(rest, y)); frag < left-1e-9 {
					t.Fatalf("%v leaves %v, but %v to %v leaves %v", plan[:first], left, x, y, frag)
				}
			}
		}
	})
}

func TestAfterRejection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		stay := drawStay(t, gpus)
		plan := AfterRejection(place.NewPool(gpus), allBut(gpus, stay...))
		after := mustKeepJobs(t, gpus, stay, plan)
		for _, s := range plan {
			if s.GPU != plan[0].GPU {
				t.Fatalf("%v: steps on more than one GPU", plan)
			}
		}
		if len(plan) > 0 && totalFrag(after) >= totalFrag(gpus) {
			t.Fatalf("%v: fragmentation from %v to %v", plan, totalFrag(gpus), totalFrag(after))
		}
	})
}

func TestConsolidate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		for k := range gpus { // halves are rare in random layouts
			var halves []int
			for i, pl := range gpus[k].Model.Placements {
				if 2*pl.Size == gpus[k].Model.Grid && gpus[k].Model.Units(i)&gpus[k].Blocked == 0 {
					halves = append(halves, i)
				}
			}
			if len(halves) > 0 && rapid.IntRange(0, 4).Draw(t, "half") > 0 {
				gpus[k].Busy, gpus[k].Idle = 0, 0
				gpus[k].Busy = gpus[k].Busy.With(rapid.SampledFrom(halves).Draw(t, "instance"))
			}
		}
		stay := drawStay(t, gpus)
		plan := Consolidate(place.NewPool(gpus), allBut(gpus, stay...))
		after := mustKeepJobs(t, gpus, stay, plan)
		empty := func(gpus []place.GPU) (n int) {
			for _, g := range gpus {
				if g.Busy == 0 {
					n++
				}
			}
			return n
		}
		if moves := len(plan.Stops()); empty(after) != empty(gpus)+moves {
			t.Fatalf("%v: %d moves, %d empty GPUs became %d", plan, moves, empty(gpus), empty(after))
		}
		for _, s := range plan {
			if s.Job != NoJob && 2*s.Model.Placements[s.Placement].Size != s.Model.Grid {
				t.Fatalf("%v: the moved instance does not have half of the units", plan)
			}
		}
		// No two further GPUs may be mergeable.
		for a, x := range after {
			for b, y := range after {
				if a == b || x.Busy.Count() != 1 || y.Busy.Count() != 1 {
					continue
				}
				for i := range x.Busy.Indices() {
					at, o := spot(a, i), placetest.PlainGPUOf(y)
					pl := x.Model.Placements[i]
					for _, z := range placetest.Every(y.Model) {
						if gpus[a].Busy == x.Busy && 2*pl.Size == x.Model.Grid &&
							2*(o.Busy[0].To-o.Busy[0].From) == y.Model.Grid && !slices.Contains(stay, at) &&
							y.Model.Profiles[z.Profile].Name == x.Model.Profiles[pl.Profile].Name &&
							o.Fits(o.Busy, z) {
							t.Fatalf("%v does not merge GPUs %d and %d:\n%s", plan, a, b, placetest.Drawing(after))
						}
					}
				}
			}
		}
	})
}
