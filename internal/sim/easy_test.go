package sim

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
	"caelum/internal/sim/trace"
)

// watched is a room that records the reservations for the head of the queue, and the time at which each job gets
// slices.
type watched struct {
	room
	s          *simulation
	reserved   map[*Job]float64 // the earliest start that was ever reserved for the job
	turn       map[*Job]float64 // the time at which the job got its slices, which may be created later
	order      []*Job           // the jobs in the order in which they got slices
	backfilled int
	after      func() // called after every attempt to place a job
}

func (w *watched) place(k int, r *reservation) (bool, *reservation) {
	j := w.s.queue.at(k)
	got, first := w.room.place(k, r)
	switch {
	case got:
		w.order = append(w.order, j)
		w.turn[j] = w.s.now
		w.backfilled += min(k, 1)
	case k == 0 && first != nil:
		if at, ok := w.reserved[j]; !ok || first.at < at {
			w.reserved[j] = first.at
		}
	}
	if w.after != nil {
		w.after()
	}
	return got, first
}

// watch runs the simulation as Run does, but with a watched room.
func watch(c Config, jobs iter.Seq[trace.Job], after func(*watched)) (*watched, error) {
	s := newSimulation(c)
	w := &watched{room: s.room, s: s, reserved: map[*Job]float64{}, turn: map[*Job]float64{}}
	if after != nil {
		w.after = func() { after(w) }
	}
	s.room = w
	if err := s.submitAll(jobs); err != nil {
		return nil, err
	}
	return w, nil
}

// policies runs a test with each policy that is not in except.
func policies(t *testing.T, test func(*testing.T, place.Policy), except ...string) {
	for _, name := range place.Names() {
		if !slices.Contains(except, name) {
			t.Run(name, func(t *testing.T) { test(t, policy(t, name)) })
		}
	}
}

// checkReservations fails the test if a job got its slices later than the earliest time that was reserved for it.
//
// A comparison with a run without the jobs behind the head would be wrong. EASY guarantees a start time only to the
// head, so a backfilled job may delay jobs behind the head. Only the run itself has the reservations.
func (w *watched) checkReservations(t *rapid.T) {
	for _, j := range w.order {
		if at, ok := w.reserved[j]; ok && w.turn[j] > at {
			t.Fatalf("%s, submitted at %v: a start at %v was reserved, and it started at %v",
				j.Profile, j.Submit, at, w.turn[j])
		}
	}
}

// TestBackfillDoesNotDelayTheHead checks that no job delays the head of the queue if the expected ends are exact. The
// head must not start later than the earliest time that was ever reserved for it. The test excludes grmu,
// which may be unable to use free units outside a job's basket.
func TestBackfillDoesNotDelayTheHead(t *testing.T) {
	policies(t, func(t *testing.T, p place.Policy) {
		backfilled := 0
		rapid.Check(t, func(t *rapid.T) {
			models, jobs := drawCase(t, 14)
			w, err := watch(Config{GPUs: models, Policy: p, Discipline: EASY}, traceJobs(jobs), nil)
			if err != nil {
				t.Fatal(err)
			}
			w.checkReservations(t)
			backfilled += w.backfilled
		})
		if !t.Failed() && !testing.Short() && backfilled == 0 {
			t.Error("no job was backfilled: the cases do not test enough")
		}
	}, "grmu")
}

// TestBackfillBesideIdleInstances repeats TestBackfillDoesNotDelayTheHead with instances that remain after their jobs,
// occupy reserved units, and take time to create.
func TestBackfillBesideIdleInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 14)
		times := rapid.SampledFrom([]float64{0, 0.25, 2})
		c := Config{
			GPUs:       models,
			Policy:     place.Reach,
			Discipline: EASY,
			Create:     times.Draw(t, "create"),
			Destroy:    times.Draw(t, "destroy"),
		}
		w, err := watch(c, traceJobs(jobs), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.checkReservations(t)
	})
}

// TestReservationUnblocksUnits checks that no units stay blocked after a search for a reservation. The running sum of
// the fragmentation must equal the sum over the GPUs.
func TestReservationUnblocksUnits(t *testing.T) {
	policies(t, func(t *testing.T, p place.Policy) {
		rapid.Check(t, func(t *rapid.T) {
			models, jobs := drawCase(t, 14)
			_, err := watch(Config{GPUs: models, Policy: p, Discipline: EASY}, traceJobs(jobs), func(w *watched) {
				c := w.room.(*cut)
				frag := 0.0
				for k := range models {
					if b := c.Pool.GPU(k).Blocked; b != 0 {
						t.Fatalf("at %v: units %b of GPU %d stay blocked", w.s.now, b, k)
					}
					frag += c.Pool.Info(k).Frag
				}
				if math.Abs(frag-c.frag) > 1e-9 {
					t.Fatalf("at %v: the running sum of the fragmentation is %v, that of the GPUs %v",
						w.s.now, c.frag, frag)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	})
}

// drawConfig returns a configuration with a random discipline, and with any policy or fixed layouts.
func drawConfig(t *rapid.T, models []*mig.Model) Config {
	c := Config{
		GPUs:       models,
		Discipline: rapid.SampledFrom([]Discipline{FIFO, EASY, Loss}).Draw(t, "discipline"),
	}
	switch name := rapid.SampledFrom(append(place.Names(), "static")).Draw(t, "room"); name {
	case "static":
		for _, b := range models {
			c.Static = append(c.Static, rapid.SampledFrom(b.Maximal()).Draw(t, "layout"))
		}
	default:
		p, err := place.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = p
	}
	return c
}

// named gives each job an ID, for use in errors.
func named(jobs []placetest.Job) iter.Seq[trace.Job] {
	return func(yield func(trace.Job) bool) {
		k := 0
		for j := range traceJobs(jobs) {
			k++
			if j.ID = fmt.Sprintf("#%d#", k); !yield(j) {
				return
			}
		}
	}
}

// TestNoJobIsLost checks that every submitted job starts exactly once, is rejected because the discipline has no
// queue, or is the one that Run's error names.
func TestNoJobIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 10)
		if rapid.IntRange(0, 9).Draw(t, "impossible") == 0 {
			rapid.SampledFrom([]*placetest.Job{&jobs[0], &jobs[len(jobs)-1]}).Draw(t, "which").Profile = "9g.90gb"
		}
		c := drawConfig(t, models)
		r, err := Run(c, named(jobs))
		w, failed := watch(c, named(jobs), nil)
		switch {
		case failed != nil:
			if err == nil || err.Error() != failed.Error() || !strings.Contains(err.Error(), "#: no GPU has 9g.90gb") {
				t.Fatalf("%v, %v", err, failed)
			}
			return
		case err != nil:
			if c.Discipline == Loss || w.s.queue.len() == 0 ||
				!strings.Contains(err.Error(), "job "+w.s.queue.at(0).ID+" can never start") {
				t.Fatalf("%v, and %d wait", err, w.s.queue.len())
			}
		case w.s.queue.len() > 0 || r.Started != len(w.order):
			t.Fatalf("%d of %d started, %d wait", r.Started, len(w.order), w.s.queue.len())
		}
		seen := map[string]bool{}
		for _, j := range w.order {
			if seen[j.ID] {
				t.Fatalf("job %s started twice", j.ID)
			}
			seen[j.ID] = true
		}
		got := &w.s.result
		if got.Submitted != len(jobs) || got.Started+got.Refused+w.s.queue.len() != len(jobs) || len(w.s.running) > 0 ||
			got.Refused > 0 && c.Discipline != Loss {
			t.Fatalf("of %d jobs %d were submitted, %d started, %d were rejected, %d wait, %d run",
				len(jobs), got.Submitted, got.Started, got.Refused, w.s.queue.len(), len(w.s.running))
		}
	})
}

// mean is a Corrector that expects jobs to run for the mean ratio of run time to estimate.
type mean struct {
	jobs  int
	ratio float64 // the sum over the jobs
}

func newMean() Corrector { return &mean{} }

func (m *mean) Finished(estimate, ran float64) { m.jobs, m.ratio = m.jobs+1, m.ratio+ran/estimate }
func (m *mean) Version() int                   { return m.jobs }

func (m *mean) Expect(estimate, ran float64) (total, until float64) {
	if m.jobs > 0 && !math.IsInf(estimate, 1) {
		estimate *= m.ratio / float64(m.jobs)
	}
	if ran >= estimate {
		estimate = 1.25 * ran
	}
	return estimate, estimate
}

// TestTheSameAgain checks that a second run with the same Config has the same result, as BestStatic requires.
func TestTheSameAgain(t *testing.T) {
	for name, estimates := range map[string]Config{
		"exact":     {},
		"limits":    {Estimate: Limits(1, 6, 1)},
		"corrected": {Estimate: Limits(1, 6, 1), Corrector: newMean},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				models, jobs := drawCase(t, 10)
				c := drawConfig(t, models)
				c.Estimate, c.Corrector = estimates.Estimate, estimates.Corrector
				first, err := Run(c, named(jobs))
				again, failed := Run(c, named(jobs))
				if fmt.Sprint(err) != fmt.Sprint(failed) || !reflect.DeepEqual(first, again) {
					t.Fatalf("%+v (%v), then %+v (%v)", first, err, again, failed)
				}
			})
		})
	}
}

// TestCorrector checks that a Corrector changes the expected ends. Job a, which has a time limit of 1,000 s and holds
// half of a GPU, is expected to end after 100 s, because the first job ran for a tenth of its limit. Job c must
// therefore not start before job b, which needs the whole GPU.
func TestCorrector(t *testing.T) {
	jobs := []trace.Job{
		{ID: "first", Submit: 0, Duration: 10, Limit: 100, Profile: "1g.5gb"},
		{ID: "a", Submit: 20, Duration: 100, Limit: 1000, Profile: "4g.20gb"},
		{ID: "b", Submit: 30, Duration: 10, Limit: 100, Profile: "7g.40gb"},
		{ID: "c", Submit: 40, Duration: 85, Limit: 850, Profile: "1g.5gb"},
	}
	c := Config{GPUs: gpus(t, "A100-40GB", 1), Policy: place.Reach, Discipline: EASY, Estimate: ownLimit}
	for _, test := range []struct {
		corrector func() Corrector
		want      []float64 // waits in the order of the starts: first, a, then c and b, or b and c
	}{{nil, []float64{0, 0, 0, 95}}, {newMean, []float64{0, 0, 90, 90}}} {
		c.Corrector = test.corrector
		if got, err := waits(c, slices.Values(jobs)); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("waits %v (%v), want %v", got, err, test.want)
		}
	}
}
