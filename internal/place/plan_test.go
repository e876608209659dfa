package place

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/mig"
)

// tb has the methods that rapid.T and testing.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// carryOut applies a plan step by step, checks every state, and returns the last one. The pool must not change.
func carryOut(t tb, gpus []GPU, plan Plan) []GPU {
	t.Helper()
	pool := NewPool(gpus)
	for n := range len(plan) + 1 {
		after, err := plan[:n].Apply(pool)
		if err != nil {
			t.Fatalf("%v: %v\n%s", plan, err, drawing(gpus))
		}
		now := after.snapshot()
		mustBeLegal(t, fmt.Sprintf("%v, after %d steps", plan, n), now)
		if !reflect.DeepEqual(pool.snapshot(), gpus) {
			t.Fatalf("%v changed the pool", plan)
		}
		if n == len(plan) {
			return now
		}
	}
	panic("unreachable")
}

// TestServe checks that a possible request is served at its spot, that no busy instance changes, and that only the idle
// instances in the way are destroyed.
func TestServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawGPUs(t)
		k := rapid.IntRange(0, len(gpus)-1).Draw(t, "gpu")
		g := gpus[k]
		for i := range g.Model.Placements {
			how, ok := plainAcquisition(g, i)
			if !ok {
				continue
			}
			plan := NewPool(gpus).Serve(Spot{k, i}, 7)
			after := carryOut(t, gpus, plan)
			if want := g.Busy.With(i); after[k].Busy != want {
				t.Fatalf("%v: busy %s, want %s", plan, g.Model.List(after[k].Busy), g.Model.List(want))
			}
			if gone := g.Idle &^ after[k].Idle; gone.Without(i) != g.InTheWay(i) || len(plan.Stops()) > 0 {
				t.Fatalf("%v destroys %s", plan, g.Model.List(gone))
			}
			if how == Reuse != (len(plan) == 1 && plan[0].Do == Take) {
				t.Fatalf("%v, acquired by %v", plan, how)
			}
		}
	})
}

// TestApplyRefuses checks that Apply refuses every step that is not possible, and changes nothing.
func TestApplyRefuses(t *testing.T) {
	b, other := plainA100(t), mig.Models()[0]
	at := func(profile string, start int) int {
		i, ok := b.Placement(profile, start)
		if !ok {
			t.Fatalf("no %s@%d", profile, start)
		}
		return i
	}
	busy, idle := at("3g.20gb", 4), at("2g.10gb", 0)
	gpus := []GPU{{Model: b, Busy: mig.Layout(0).With(busy), Idle: mig.Layout(0).With(idle), Blocked: 1 << 3}, {}}
	for what, s := range map[string]Step{
		"no such GPU":                 {Destroy, Spot{2, idle}, b, Nobody},
		"negative GPU":                {Destroy, Spot{-1, idle}, b, Nobody},
		"GPU without a model":         {Create, Spot{1, idle}, b, 1},
		"no model":                    {Create, Spot{1, idle}, nil, 1},
		"another model":               {Destroy, Spot{0, idle}, other, Nobody},
		"no such placement":           {Destroy, Spot{0, len(b.Placements)}, b, Nobody},
		"no such action":              {endOfActions, Spot{0, idle}, b, 1},
		"destroy a missing one":       {Destroy, Spot{0, at("1g.5gb", 2)}, b, Nobody},
		"destroy a busy one as idle":  {Destroy, Spot{0, busy}, b, Nobody},
		"destroy an idle one as busy": {Destroy, Spot{0, idle}, b, 1},
		"leave an idle one":           {Leave, Spot{0, idle}, b, 1},
		"leave for nobody":            {Leave, Spot{0, busy}, b, Nobody},
		"take a busy one":             {Take, Spot{0, busy}, b, 1},
		"take for nobody":             {Take, Spot{0, idle}, b, Nobody},
		"create over a busy one":      {Create, Spot{0, at("1g.5gb", 5)}, b, 1},
		"create over an idle one":     {Create, Spot{0, at("1g.5gb", 1)}, b, 1},
		"create on a blocked unit":    {Create, Spot{0, at("1g.5gb", 3)}, b, 1},
		"create a busy one again":     {Create, Spot{0, busy}, b, 1},
	} {
		before := slices.Clone(gpus)
		if after, err := (Plan{s}).Apply(NewPool(gpus)); err == nil {
			t.Errorf("%s: carried out:\n%s", what, drawing(after.snapshot()))
		}
		if !reflect.DeepEqual(before, gpus) {
			t.Errorf("%s: the GPUs have changed", what)
		}
	}
}

// TestApplyEnds checks that a moved job keeps its end, that any other job gets an unknown end, and that the ends in the
// pool do not change.
func TestApplyEnds(t *testing.T) {
	b := plainA100(t)
	small, _ := b.Placement("1g.5gb", 0)
	last, _ := b.Placement("1g.5gb", 6)
	large, _ := b.Placement("4g.20gb", 0)
	pool := NewPool([]GPU{{Model: b}})
	pool.Start(0, small, 500)
	after, err := Plan{
		{Destroy, Spot{0, small}, b, 3},
		{Create, Spot{0, last}, b, 3},
		{Create, Spot{0, large}, b, 4},
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

// FuzzPlan checks that any plan on any GPUs is refused or leads to legal layouts.
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
		gpus := make([]GPU, next()%3)
		for k := range gpus {
			b := everyModel()[next()%len(everyModel())]
			layout := b.Layouts()[(next()<<8|next())%len(b.Layouts())]
			idle := mig.Layout(next()<<8|next()) & layout
			// At most one unit is blocked, because the tables of a GPU model are kept for every set of blocked units.
			blocked := uint64(1) << (next() % (2 * b.Grid)) & (1<<b.Grid - 1)
			gpus[k] = GPU{Model: b, Busy: layout &^ idle, Idle: idle, Blocked: blocked &^ b.Occupied(layout)}
		}
		gpus = append(gpus, GPU{})
		var plan Plan
		for len(data) > 0 && len(plan) < 50 {
			s := Step{Do: Action(next()%6 - 1), Spot: Spot{next()%5 - 1, next()%40 - 1}, Job: next()%5 - 2}
			if s.GPU >= 0 && s.GPU < len(gpus) {
				s.Model = gpus[s.GPU].Model
			}
			plan = append(plan, s)
		}
		pool := NewPool(gpus)
		for n := range plan {
			after, err := plan[:n+1].Apply(pool)
			if err != nil {
				break
			}
			mustBeLegal(t, plan[:n+1].String(), after.snapshot())
			if slices.ContainsFunc(plan[:n+1], func(s Step) bool { return s.Model == nil }) {
				t.Fatalf("%d steps carried out, one of them without a GPU model", n+1)
			}
		}
		mustBeLegal(t, "the pool of the plan", pool.snapshot())
		if !reflect.DeepEqual(pool.snapshot(), gpus) {
			t.Fatal("the plan changed the pool")
		}
	})
}
