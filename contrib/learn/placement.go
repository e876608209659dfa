package main

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/predict"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

const (
	gpus      = 16
	churnJobs = 4000
	recurring = 20 // works of each profile among which its jobs are dealt out
)

// churn is the built-in workload with jobs that recur: the arrivals and profiles of trace.Churn at load 0.85, each job
// a run of one of twenty works of its profile. A work's typical run time is exponential, and its runs' lognormal about
// it with a sigma of 0.05 for half of the works and 0.4 for the others; its time limit is 1 to 6 times the typical,
// never less than the run. All are stretched alike, so that they ask for as many units times seconds as the built-in
// workload.
func churn(b *mig.Model, mix trace.Mix, seed uint64) (jobs []trace.Job, work map[string]string) {
	rng := rand.New(rand.NewPCG(seed, 11))
	type kind struct{ typical, sigma, limit float64 }
	kinds := map[string]kind{}
	work = map[string]string{}
	before, after := 0.0, 0.0 // units times seconds
	for j := range (trace.Churn{Mix: mix, Jobs: churnJobs, GPUs: gpus, Load: 0.85, Seed: seed}).All() {
		key := j.Profile + string(rune('A'+rng.IntN(recurring)))
		k, known := kinds[key]
		if !known {
			k.typical, k.sigma = 3600*rng.ExpFloat64(), []float64{0.05, 0.4}[rng.IntN(2)]
			k.limit = k.typical * (1 + 5*rng.Float64())
			kinds[key] = k
		}
		p, _ := b.ProfileIndex(j.Profile)
		units := float64(b.Profiles[p].Size)
		before += units * j.Duration
		j.Duration = k.typical * math.Exp(k.sigma*rng.NormFloat64()-k.sigma*k.sigma/2)
		j.Limit = max(k.limit, j.Duration)
		after += units * j.Duration
		jobs = append(jobs, j)
		work[j.ID] = key
	}
	for k := range jobs {
		jobs[k].Duration *= before / after
		jobs[k].Limit *= before / after
	}
	return jobs, work
}

// memory learns run times while a simulation goes on: it is an observer of it, and says of a job what is known when it
// is submitted.
type memory struct {
	work    map[string]string
	running []sim.Span
	past    map[string][]predict.Run
}

func (m *memory) Passed(_, _ float64, _, _ int, _ float64) {}
func (m *memory) Waited(string, float64)                   {}
func (m *memory) Ran(s sim.Span)                           { m.running = append(m.running, s) }

// said is what is said of a job: what the runs of its work that have ended by now say, else its limit.
func (m *memory) said(j trace.Job) float64 {
	m.running = slices.DeleteFunc(m.running, func(s sim.Span) bool {
		if s.To > j.Submit {
			return false
		}
		key := m.work[s.Job]
		m.past[key] = append(m.past[key], predict.Run{State: "COMPLETED", Seconds: s.To - s.From, Samples: 1, Util: -1})
		return true
	})
	need, ok := predict.Predict(predict.History{Runs: m.past[m.work[j.ID]]}, predict.DefaultSite)
	if !ok {
		return j.Limit
	}
	return min(need.Seconds, j.Limit)
}

// placements plays the built-in workload, with jobs that recur, under what may be known of run times.
func placements(w io.Writer, seeds []uint64) error {
	model, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return err
	}
	policy, err := place.ByName("qla")
	if err != nil {
		return err
	}
	models := slices.Repeat([]*mig.Model{model.Select(mig.Plain)}, gpus)
	limit := func(j trace.Job) float64 { return j.Limit }
	known := []struct {
		name  string
		learn bool
		said  func(work map[string]string) (func(trace.Job) float64, sim.Observer)
	}{
		{"the truth", false, func(map[string]string) (func(trace.Job) float64, sim.Observer) { return nil, nil }},
		{"the limits", false, func(map[string]string) (func(trace.Job) float64, sim.Observer) { return limit, nil }},
		{
			"the limits and Ends",
			true,
			func(map[string]string) (func(trace.Job) float64, sim.Observer) { return limit, nil },
		},
		{"the works' runs", false, func(work map[string]string) (func(trace.Job) float64, sim.Observer) {
			m := &memory{work: work, past: map[string][]predict.Run{}}
			return m.said, m
		}},
		{"the works' runs and Ends", true, func(work map[string]string) (func(trace.Job) float64, sim.Observer) {
			m := &memory{work: work, past: map[string][]predict.Run{}}
			return m.said, m
		}},
	}
	for _, queue := range []struct {
		name       string
		discipline sim.Discipline
	}{{"FIFO", sim.FIFO}, {"EASY", sim.EASY}} {
		var failed error
		err := table(
			w,
			"mean wait in s: "+queue.name+" with qla by, uniform6, skew-small, bimodal, four-equal",
			func(row func(string, ...any)) {
				for _, k := range known {
					values := []any{k.name}
					for _, mix := range trace.Mixes {
						sum := 0.0
						for _, seed := range seeds {
							jobs, work := churn(models[0], mix.Mix, seed)
							c := sim.Config{GPUs: models, Policy: policy, Discipline: queue.discipline, Learn: k.learn}
							c.Said, c.Observer = k.said(work)
							r, err := sim.Run(c, slices.Values(jobs))
							if err != nil {
								failed = err
								return
							}
							sum += r.Waits.Mean()
						}
						values = append(values, sum/float64(len(seeds)))
					}
					row("%s, %.0f, %.0f, %.0f, %.0f", values...)
				}
			},
		)
		if err != nil || failed != nil {
			return errors.Join(failed, err)
		}
	}
	return nil
}
