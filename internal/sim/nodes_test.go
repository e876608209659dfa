package sim

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// spans records the slices of jobs.
type spans struct {
	waited
	all []Span
}

func (s *spans) Ran(span Span) { s.all = append(s.all, span) }

// drawNodes returns up to four random nodes, each with up to three GPUs of one of two GPU models, and the models by
// node.
func drawNodes(t *rapid.T) (c Config, models [][]*mig.Model) {
	all := mig.Models()
	two := []*mig.Model{}
	for range 2 {
		b := all[rapid.IntRange(0, len(all)-1).Draw(t, "model")].Select(mig.Plain)
		if rapid.Bool().Draw(t, "full") {
			b = b.WithFull(0)
		}
		two = append(two, b)
	}
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		of := slices.Repeat([]*mig.Model{two[rapid.IntRange(0, 1).Draw(t, "of")]}, rapid.IntRange(1, 3).Draw(t, "gpus"))
		c.Nodes, c.GPUs, models = append(c.Nodes, len(of)), append(c.GPUs, of...), append(models, of)
	}
	return c, models
}

func drawJob(t *rapid.T, models []*mig.Model) trace.Job {
	b := models[rapid.IntRange(0, len(models)-1).Draw(t, "for")]
	return trace.Job{
		Profile:  b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")].Name,
		Duration: float64(rapid.IntRange(1, 6).Draw(t, "duration")),
		Slices:   rapid.IntRange(0, 5).Draw(t, "slices"),
		Nodes:    rapid.IntRange(0, 3).Draw(t, "on nodes"),
	}
}

// drawRoom sets a random policy that does not reject any job, or random fixed layouts.
func drawRoom(t *rapid.T, c *Config) {
	c.Discipline = rapid.SampledFrom([]Discipline{FIFO, EASY}).Draw(t, "discipline")
	if rapid.Bool().Draw(t, "static") {
		for _, b := range c.GPUs {
			c.Static = append(c.Static, rapid.SampledFrom(b.Maximal()).Draw(t, "layout"))
		}
		return
	}
	c.Policy = rapid.SampledFrom([]place.Policy{place.Reach, place.Lifetime{}}).Draw(t, "policy")
}

// TestNodes checks that a job with several slices holds all of them at the same time. They must not overlap, and must
// be evenly distributed over as many nodes as the job requested.
func TestNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, models := drawNodes(t)
		drawRoom(t, &c)
		w := trace.Workload{}
		at := 0.0
		for k := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			j := drawJob(t, c.GPUs)
			at += float64(rapid.IntRange(0, 3).Draw(t, "later"))
			j.ID, j.Submit = strconv.Itoa(k), at
			w.Jobs = append(w.Jobs, j)
		}
		w.Only(models, false)
		var seen spans
		c.Observer = &seen
		if _, err := Run(c, slices.Values(w.Jobs)); err != nil {
			if c.Static != nil {
				t.Skip("the layouts cannot hold every job")
			}
			t.Fatal(err)
		}
		nodeOf := newSimulation(c).nodeOf
		by := map[string]map[int]int{}
		for k, s := range seen.all {
			if by[s.Job] == nil {
				by[s.Job] = map[int]int{}
			}
			by[s.Job][nodeOf[s.GPU]]++
			for _, o := range seen.all[:k] {
				if s.GPU == o.GPU && s.From < o.To && o.From < s.To && s.Start < o.Start+o.Size &&
					o.Start < s.Start+s.Size {
					t.Fatalf("%+v and %+v", s, o)
				}
			}
		}
		for _, j := range w.Jobs {
			nodes, each := j.Spread()
			for _, on := range by[j.ID] {
				if on != each || len(by[j.ID]) != nodes {
					t.Fatalf("%+v: %v, not %d on each of %d nodes", j, by[j.ID], each, nodes)
				}
			}
			if by[j.ID] == nil {
				t.Fatalf("%+v never ran", j)
			}
		}
	})
}

// TestUnknownRunTime checks that a job without an estimated run time can start alongside a job with an estimate, if
// instances take time to create.
func TestUnknownRunTime(t *testing.T) {
	jobs := []trace.Job{
		{ID: "unknown", Profile: "1g.5gb", Duration: 100},
		{ID: "known", Submit: 1, Profile: "1g.5gb", Duration: 100, Limit: 300},
	}
	estimate := func(j trace.Job) float64 {
		if j.Limit == 0 {
			return math.Inf(1)
		}
		return j.Limit
	}
	for _, p := range []place.Policy{place.Reach, place.Lifetime{}} {
		c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: p, Estimate: estimate, Corrector: newMean, Create: 0.2,
			Discipline: EASY}
		for _, offers := range []bool{false, true} {
			c.Offers = offers
			if r, err := Run(c, slices.Values(jobs)); err != nil || r.Started != 2 {
				t.Errorf("%T: %v, %+v", p, err, r)
			}
		}
	}
}

// TestOnlyWhatCanRun checks that the jobs that Only removes could never run, and that the remaining jobs can run on
// empty GPUs.
func TestOnlyWhatCanRun(t *testing.T) {
	never, can := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c, models := drawNodes(t)
		c.Policy = place.Reach
		w := trace.Workload{Jobs: []trace.Job{drawJob(t, c.GPUs)}}
		_, err := Run(c, slices.Values(w.Jobs))
		w.Only(models, false)
		if len(w.Jobs) == 1 {
			can++
		} else {
			never++
		}
		if (err == nil) != (len(w.Jobs) == 1) {
			t.Fatalf("%v, and %v is left out", err, w.Left)
		}
	})
	if !testing.Short() && (never == 0 || can == 0) {
		t.Errorf("%d could run, %d never: the cases do not test enough", can, never)
	}
}
