package sim

import (
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/place/placetest"
	"caelum/internal/sim/trace"
)

// drawCase returns a few random jobs, and one or two GPUs of any GPU model.
func drawCase(t *rapid.T, most int) (all []*mig.Model, jobs []placetest.Job) {
	b := rapid.SampledFrom(mig.Models()).Draw(t, "model").Select(mig.Plain)
	for range rapid.IntRange(1, 2).Draw(t, "gpus") {
		all = append(all, b)
	}
	at := 0.0
	for range rapid.IntRange(1, most).Draw(t, "jobs") {
		at += float64(rapid.IntRange(0, 3).Draw(t, "later"))
		p := rapid.SampledFrom(b.Profiles).Draw(t, "profile")
		jobs = append(
			jobs,
			placetest.Job{Profile: p.Name, Arrival: at, Duration: float64(rapid.IntRange(1, 6).Draw(t, "duration"))},
		)
	}
	return all, jobs
}

func traceJobs(jobs []placetest.Job) iter.Seq[trace.Job] {
	return func(yield func(trace.Job) bool) {
		for _, j := range jobs {
			if !yield(trace.Job{Profile: j.Profile, Submit: j.Arrival, Duration: j.Duration}) {
				return
			}
		}
	}
}

// waited records the waits of jobs, in the order of their starts.
type waited []float64

func (*waited) Passed(_, _ float64, _, _ int, _ float64) {}
func (*waited) Ran(Span)                                 {}
func (w *waited) Waited(_ string, wait float64)          { *w = append(*w, wait) }

func waits(c Config, jobs iter.Seq[trace.Job]) ([]float64, error) {
	var all waited
	c.Observer = &all
	_, err := Run(c, jobs)
	return all, err
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// TestNoPolicyBeatsTheOptimum checks that no policy has shorter waits than the FIFO optimum. In some cases a policy
// must reach the optimum, which shows that the bound is tight.
func TestNoPolicyBeatsTheOptimum(t *testing.T) {
	reached, worse := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		models, jobs := drawCase(t, 6)
		empty := make([]place.GPU, len(models))
		for k := range empty {
			empty[k].Model = models[k]
		}
		best := placetest.Optimum(empty, jobs, placetest.Rules{FIFO: true})
		for _, name := range place.Names() {
			p, err := place.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			waits, err := waits(Config{GPUs: models, Policy: p}, traceJobs(jobs))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.IsSorted(starts(waits, jobs)) {
				t.Fatalf("%s: not first in, first out: waits %v of %v", name, waits, jobs)
			}
			switch waited := sum(waits); {
			case waited < best-1e-6:
				t.Fatalf("%s waits %v, the optimum is %v: %v on %d of %s",
					name, waited, best, jobs, len(models), models[0].Name)
			case waited < best+1e-6:
				reached++
			default:
				worse++
			}
		}
	})
	t.Logf("optimal in %d of %d runs", reached, reached+worse)
	if !testing.Short() && (reached == 0 || worse == 0) {
		t.Errorf("optimal in %d runs, worse in %d: the cases do not test enough", reached, worse)
	}
}

// starts returns the start times of the jobs in a FIFO run.
func starts(waits []float64, jobs []placetest.Job) (all []float64) {
	for k, w := range waits {
		all = append(all, jobs[k].Arrival+w)
	}
	return all
}
