package reconfigure

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
)

// carryOut applies a plan step by step, checks every state, and returns the final state. The pool must not change.
func carryOut(t placetest.TB, gpus []place.GPU, plan Plan) []place.GPU {
	t.Helper()
	pool := place.NewPool(gpus)
	for n := range len(plan) + 1 {
		after, err := plan[:n].Apply(pool)
		if err != nil {
			t.Fatalf("%v: %v\n%s", plan, err, placetest.Drawing(gpus))
		}
		now := gpusOf(after)
		placetest.MustBeLegal(t, fmt.Sprintf("%v, after %d steps", plan, n), now)
		if !reflect.DeepEqual(gpusOf(pool), gpus) {
			t.Fatalf("%v changed the pool", plan)
		}
		if n == len(plan) {
			return now
		}
	}
	panic("unreachable")
}

// TestServe checks that a possible request gets its spot, that busy instances do not change, and that only the idle
// instances in the way are destroyed.
func TestServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := placetest.DrawGPUs(t)
		k := rapid.IntRange(0, len(gpus)-1).Draw(t, "gpu")
		g := gpus[k]
		for i := range g.Model.Placements {
			how, ok := placetest.PlainAcquisition(g, i)
			if !ok {
				continue
			}
			plan := Serve(place.NewPool(gpus), spot(k, i), 7)
			after := carryOut(t, gpus, plan)
			if want := g.Busy.With(i); after[k].Busy != want {
				t.Fatalf("%v: busy %s, want %s", plan, g.Model.List(after[k].Busy), g.Model.List(want))
			}
			if gone := g.Idle &^ after[k].Idle; gone.Without(i) != g.InTheWay(i) || len(plan.Stops()) > 0 {
				t.Fatalf("%v destroys %s", plan, g.Model.List(gone))
			}
			if how == place.Reuse != (len(plan) == 1 && plan[0].Do == Take) {
				t.Fatalf("%v, acquired by %v", plan, how)
			}
		}
	})
}

// TestApplyRefuses checks that Apply rejects every impossible step and changes nothing.
func TestApplyRefuses(t *testing.T) {
	b, other := placetest.PlainA100(t), mig.Models()[0]
	at := func(profile string, start int) int {
		i, ok := b.Placement(profile, start)
		if !ok {
			t.Fatalf("no %s@%d", profile, start)
		}
		return i
	}
	busy, idle := at("3g.20gb", 4), at("2g.10gb", 0)
	gpus := []place.GPU{{Model: b, Busy: mig.Layout(0).With(busy), Idle: mig.Layout(0).With(idle), Blocked: 1 << 3}, {}}
	for what, s := range map[string]Step{
		"no such GPU":                 {Destroy, spot(2, idle), b, NoJob},
		"negative GPU":                {Destroy, spot(-1, idle), b, NoJob},
		"GPU without a model":         {Create, spot(1, idle), b, 1},
		"no model":                    {Create, spot(1, idle), nil, 1},
		"another model":               {Destroy, spot(0, idle), other, NoJob},
		"no such placement":           {Destroy, spot(0, len(b.Placements)), b, NoJob},
		"no such action":              {endOfActions, spot(0, idle), b, 1},
		"destroy a missing one":       {Destroy, spot(0, at("1g.5gb", 2)), b, NoJob},
		"destroy a busy one as idle":  {Destroy, spot(0, busy), b, NoJob},
		"destroy an idle one as busy": {Destroy, spot(0, idle), b, 1},
		"leave an idle one":           {Leave, spot(0, idle), b, 1},
		"leave for nobody":            {Leave, spot(0, busy), b, NoJob},
		"take a busy one":             {Take, spot(0, busy), b, 1},
		"take for nobody":             {Take, spot(0, idle), b, NoJob},
		"create over a busy one":      {Create, spot(0, at("1g.5gb", 5)), b, 1},
		"create over an idle one":     {Create, spot(0, at("1g.5gb", 1)), b, 1},
		"create on a blocked unit":    {Create, spot(0, at("1g.5gb", 3)), b, 1},
		"create a busy one again":     {Create, spot(0, busy), b, 1},
	} {
		before := slices.Clone(gpus)
		if after, err := (Plan{s}).Apply(place.NewPool(gpus)); err == nil {
			t.Errorf("%s: carried out:\n%s", what, placetest.Drawing(gpusOf(after)))
		}
		if !reflect.DeepEqual(before, gpus) {
			t.Errorf("%s: the GPUs have changed", what)
		}
	}
}

// TestApplyEnds checks that a moved job keeps its end, and that every other job gets an unknown end. The ends in the
// pool must not change.
func TestApplyEnds(t *testing.T) {
	b := placetest.PlainA100(t)
	small, _ := b.Placement("1g.5gb", 0)
	last, _ := b.Placement("1g.5gb", 6)
	large, _ := b.Placement("4g.20gb", 0)
	pool := place.NewPool([]place.GPU{{Model: b}})
	pool.Start(0, small, 500)
	after, err := Plan{
		{Destroy, spot(0, small), b, 3},
		{Create, spot(0, last), b, 3},
		{Create, spot(0, large), b, 4},
	}.Apply(pool)
	if err != nil {
		t.Fatal(err)
	}
	if ends := after.GPU(0).Ends; ends[last] != 500 || !math.IsInf(ends[large], 1) {
		t.Errorf("the moved job ends at %v, want 500; the new one at %v, want +Inf", ends[last], ends[large])
	}
	if ends := pool.GPU(0).Ends; ends[small] != 500 || !math.IsInf(ends[last], 1) {
		t.Errorf("the ends in the pool are now %v", ends)
	}
}

// FuzzPlan checks, for any plan and any GPUs, that Apply either rejects the plan or returns legal layouts.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 2, 2, 0, 3, 1, 0, 0, 3, 1})
	f.Add([]byte{1, 4, 200, 17, 255, 3, 2, 0, 5, 9, 3, 0, 5, 2, 0, 0, 5, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			x := data[0]
			data = data[1:]
			return int(x)
		}
		gpus := make([]place.GPU, next()%3)
		for k := range gpus {
			b := placetest.EveryModel()[next()%len(placetest.EveryModel())]
			layout := b.Layouts()[(next()<<8|next())%len(b.Layouts())]
			idle := mig.Layout(next()<<8|next()) & layout
			// At most one unit is blocked, because a GPU model caches a table for every set of blocked units.
			blocked := uint64(1) << (next() % (2 * b.Grid)) & (1<<b.Grid - 1)
			gpus[k] = place.GPU{Model: b, Busy: layout &^ idle, Idle: idle, Blocked: blocked &^ b.Occupied(layout)}
		}
		gpus = append(gpus, place.GPU{})
		var plan Plan
		for len(data) > 0 && len(plan) < 50 {
			s := Step{Do: Action(next()%6 - 1), Spot: spot(next()%5-1, next()%40-1), Job: next()%5 - 2}
			if s.GPU >= 0 && s.GPU < len(gpus) {
				s.Model = gpus[s.GPU].Model
			}
			plan = append(plan, s)
		}
		pool := place.NewPool(gpus)
		for n := range plan {
			after, err := plan[:n+1].Apply(pool)
			if err != nil {
				break
			}
			placetest.MustBeLegal(t, plan[:n+1].String(), gpusOf(after))
			if slices.ContainsFunc(plan[:n+1], func(s Step) bool { return s.Model == nil }) {
				t.Fatalf("%d steps carried out, one of them without a GPU model", n+1)
			}
		}
		placetest.MustBeLegal(t, "the pool of the plan", gpusOf(pool))
		if !reflect.DeepEqual(gpusOf(pool), gpus) {
			t.Fatal("the plan changed the pool")
		}
	})
}
