package papers

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// drawCase returns a few random jobs, and one or two GPUs of any GPU model.
func drawCase(t *rapid.T, most int) (all []*mig.Model, jobs []placetest.Job) {
	b := rapid.SampledFrom(plainModels).Draw(t, "model")
	all = slices.Repeat([]*mig.Model{b}, rapid.IntRange(1, 2).Draw(t, "gpus"))
	at := 0.0
	for range rapid.IntRange(1, most).Draw(t, "jobs") {
		at += float64(rapid.IntRange(0, 3).Draw(t, "later"))
		jobs = append(jobs, placetest.Job{
			Profile:  rapid.SampledFrom(b.Profiles).Draw(t, "profile").Name,
			Arrival:  at,
			Duration: float64(rapid.IntRange(1, 6).Draw(t, "duration")),
		})
	}
	return all, jobs
}

func traceJobs(jobs []placetest.Job) (all []trace.Job) {
	for k, j := range jobs {
		all = append(all, trace.Job{
			ID: strconv.Itoa(k), Profile: j.Profile, Submit: j.Arrival, Duration: j.Duration,
		})
	}
	return all
}

func total(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// TestMovedIsTheOptimumWithMigration checks that the reference that moves all jobs reaches the optimum with migration.
// In FIFO order, each job starts as soon as it can be packed together with all running jobs.
func TestMovedIsTheOptimumWithMigration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 6)
		empty := make([]place.GPU, len(models))
		for k := range empty {
			empty[k].Model = models[k]
		}
		waits, err := waits(sim.Config{GPUs: models, Scheduler: Moved(nil)}, traceJobs(jobs))
		if err != nil {
			t.Fatal(err)
		}
		best := placetest.Optimum(empty, jobs, placetest.Rules{FIFO: true, Migration: true})
		if math.Abs(total(waits)-best) > 1e-6 {
			t.Fatalf("waits %v, the optimum is %v: %v on %d of %s",
				total(waits), best, jobs, len(models), models[0].Name)
		}
	})
}

// drawConfig returns a configuration with a random scheduler, and with any policy, fixed layouts, or the reference that
// moves jobs.
func drawConfig(t *rapid.T, models []*mig.Model) sim.Config {
	c := sim.Config{
		GPUs:       models,
		Discipline: rapid.SampledFrom([]sim.Discipline{sim.FIFO, sim.EASY, sim.Loss}).Draw(t, "discipline"),
	}
	order := rapid.SampledFrom([]Order{Skip, Smallest}).Draw(t, "order")
	switch name := rapid.SampledFrom(append(place.Names(), "static", "moved")).Draw(t, "room"); name {
	case "static":
		for _, b := range models {
			c.Static = append(c.Static, rapid.SampledFrom(b.Maximal()).Draw(t, "layout"))
		}
		c.Scheduler = Ordered(order)
	case "moved":
		if c.Scheduler = Moved(order); rapid.Bool().Draw(t, "in order") {
			c.Scheduler = Moved(nil)
		}
	default:
		p, err := place.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = p
		switch rapid.IntRange(0, 2).Draw(t, "scheduler") {
		case 0:
			c.Scheduler = Batches
		case 1:
			c.Scheduler = Ordered(order)
		default:
			rules := []MoveRule{MoveAfterDeparture, MoveAfterRejection, StopForHead, MoveForHead}
			if c.Discipline == sim.Loss {
				rules = rules[:2]
			}
			rule := Moves{Rule: rapid.SampledFrom(rules).Draw(t, "rule")}
			c.Scheduler, c.Moves = rule.Scheduler, true
		}
	}
	return c
}

// TestNoJobIsLost checks that every submitted job starts exactly once, is rejected because the discipline has no
// queue, or is the one that Run's error names. A second run must have the same result, as BestStatic requires.
func TestNoJobIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 10)
		c := drawConfig(t, models)
		var seen spans
		c.Observer = &seen
		r, err := sim.Run(c, slices.Values(traceJobs(jobs)))
		c.Observer = nil
		again, failed := sim.Run(c, slices.Values(traceJobs(jobs)))
		if fmt.Sprint(err) != fmt.Sprint(failed) || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v (%v), then %+v (%v)", r, err, again, failed)
		}
		if err != nil {
			if c.Discipline == sim.Loss || c.Scheduler != nil && c.Policy == nil && c.Static == nil ||
				!strings.Contains(err.Error(), " can never start") {
				t.Fatal(err)
			}
			t.Skip(err) // the policy or the layouts cannot hold every job
		}
		if slices.Sort(seen.jobs); len(slices.Compact(seen.jobs)) != r.Started {
			t.Fatalf("%d jobs started, but the observer received %v", r.Started, seen.jobs)
		}
		if r.Submitted != len(jobs) || r.Started+r.Refused != len(jobs) || r.Refused > 0 && c.Discipline != sim.Loss {
			t.Fatalf("of %d jobs %d were submitted, %d started, %d were rejected",
				len(jobs), r.Submitted, r.Started, r.Refused)
		}
	})
}

// TestSeveralSlices checks that a job with several slices starts when all of its slices are free.
func TestSeveralSlices(t *testing.T) {
	two := gpus(t, "A100-40GB", 2)
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, Profile: "4g.20gb"},
		{ID: "b", Submit: 0, Duration: 30, Profile: "4g.20gb"},
		{ID: "pair", Submit: 10, Duration: 50, Profile: "4g.20gb", Slices: 2}, // starts when both jobs have ended
		// The long job is submitted after the pair. In the half that b uses, it would delay the pair.
		{ID: "long", Submit: 20, Duration: 90, Profile: "4g.20gb"},
		{ID: "short", Submit: 25, Duration: 20, Profile: "4g.20gb"},  // ends before the pair starts
		{ID: "other", Submit: 26, Duration: 500, Profile: "3g.20gb"}, // uses a half that no other job needs
	}
	for _, c := range []struct {
		name string
		c    sim.Config
		want []float64 // waits in the order of the starts
	}{
		{"moved, FIFO", sim.Config{Scheduler: Moved(nil)}, []float64{0, 0, 90, 130, 125, 124}},
		{"moved, EASY", sim.Config{Scheduler: Moved(nil), Discipline: sim.EASY}, []float64{0, 0, 0, 5, 90, 130}},
		{"moved, skip", sim.Config{Scheduler: Moved(Skip)}, []float64{0, 0, 0, 10, 75, 110}},
		{
			"best-fit, skip",
			sim.Config{Policy: policy(t, "best-fit"), Scheduler: Ordered(Skip)},
			[]float64{0, 0, 0, 10, 75, 110},
		},
		{
			"best-fit, smallest",
			sim.Config{Policy: policy(t, "best-fit"), Scheduler: Ordered(Smallest)},
			[]float64{0, 0, 0, 10, 75, 110},
		},
	} {
		c.c.GPUs = two
		got, err := waits(c.c, jobs)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: waits %v, want %v", c.name, got, c.want)
		}
	}
}

// TestQueueOrder checks that jobs that need whole GPUs start last with the Smallest order, and in the order of
// submission with Skip.
func TestQueueOrder(t *testing.T) {
	jobs := []trace.Job{
		{ID: "first", Submit: 0, Duration: 100, Profile: "7g.40gb"},
		{ID: "whole", Submit: 1, Duration: 10, Profile: "7g.40gb"},
		{ID: "half", Submit: 2, Duration: 10, Profile: "3g.20gb"},
		{ID: "small", Submit: 3, Duration: 10, Profile: "1g.5gb"},
	}
	for name, test := range map[string]struct {
		order Order
		want  []float64
	}{
		"skip": {Skip, []float64{0, 99, 108, 107}},
		// The small job, the half-GPU job alongside it, and then the whole-GPU jobs.
		"smallest": {Smallest, []float64{0, 97, 98, 109}},
	} {
		got, err := waits(
			sim.Config{GPUs: gpus(t, "A100-40GB", 1), Policy: policy(t, "reach"), Scheduler: Ordered(test.order)},
			jobs,
		)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: waits %v, want %v", name, got, test.want)
		}
	}
}
