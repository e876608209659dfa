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
	recurring = 20 // the number of scripts of each profile; the profile's jobs are distributed among these scripts
)

// churn generates the built-in workload with recurring jobs. The arrivals and profiles are those of trace.Churn at load
// 0.85, and each job is a run of one of twenty scripts of its profile. The typical run times of the scripts are
// exponentially distributed. The run times of one script are lognormally distributed around its typical run time, with
// a sigma of 0.05 for half of the scripts and 0.4 for the other half. The time limit is 1 to 6 times the typical run
// time, and never less than the run time. All durations are scaled by the same factor, so that the jobs request as many
// unit-seconds as the built-in workload.
func churn(b *mig.Model, mix trace.Mix, seed uint64) (jobs []trace.Job, scripts map[string]string) {
	rng := rand.New(rand.NewPCG(seed, 11))
	type kind struct{ typical, sigma, limit float64 }
	kinds := map[string]kind{}
	scripts = map[string]string{}
	before, after := 0.0, 0.0 // unit-seconds
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
		scripts[j.ID] = key
	}
	for k := range jobs {
		jobs[k].Duration *= before / after
		jobs[k].Limit *= before / after
	}
	return jobs, scripts
}

// memory learns run times during a simulation. It observes the ends of runs, and estimates the run
// time of a job from the runs that have ended before the job's submission.
type memory struct {
	scripts map[string]string // the key of the script of each job
	running []sim.Span
	past    map[string][]predict.Run
}

func (m *memory) Passed(_, _ float64, _, _ int, _ float64) {}
func (m *memory) Waited(string, float64)                   {}
func (m *memory) Ran(s sim.Span)                           { m.running = append(m.running, s) }

// estimate returns the predicted run time of a job in seconds, based on the runs of its script that have ended before
// its submission. If there are no such runs, estimate returns the job's limit.
func (m *memory) estimate(j trace.Job) float64 {
	m.running = slices.DeleteFunc(m.running, func(s sim.Span) bool {
		if s.To > j.Submit {
			return false
		}
		key := m.scripts[s.Job]
		m.past[key] = append(m.past[key], predict.Run{State: "COMPLETED", Seconds: s.To - s.From, Samples: 1, Util: -1})
		return true
	})
	need, ok := predict.Predict(predict.History{Runs: m.past[m.scripts[j.ID]]}, predict.DefaultSite)
	if !ok {
		return j.Limit
	}
	return min(need.Seconds, j.Limit)
}

// estimator is a source of the run times that the scheduler expects. Its function estimate returns a function for the
// run time of a job in seconds, and the observer that the simulation must call. If ends is true, the policy also gets
// the estimated run times.
type estimator struct {
	name     string
	ends     bool
	estimate func(scripts map[string]string) (func(trace.Job) float64, sim.Observer)
}

var estimators = []estimator{
	{"the truth", false, byTruth},
	{"the limits", false, byLimits},
	{"the limits and Ends", true, byLimits},
	{"the scripts' runs", false, byRuns},
	{"the scripts' runs and Ends", true, byRuns},
}

func byTruth(map[string]string) (func(trace.Job) float64, sim.Observer) { return nil, nil }

func byLimits(map[string]string) (func(trace.Job) float64, sim.Observer) {
	return func(j trace.Job) float64 { return j.Limit }, nil
}

func byRuns(scripts map[string]string) (func(trace.Job) float64, sim.Observer) {
	m := &memory{scripts: scripts, past: map[string][]predict.Run{}}
	return m.estimate, m
}

// meanWait simulates the built-in workload once per seed and returns the mean of the mean waits in seconds.
func (e estimator) meanWait(c sim.Config, mix trace.Mix, seeds []uint64) (float64, error) {
	c.Learn = e.ends
	sum := 0.0
	for _, seed := range seeds {
		jobs, scripts := churn(c.GPUs[0], mix, seed)
		c.Said, c.Observer = e.estimate(scripts)
		r, err := sim.Run(c, slices.Values(jobs))
		if err != nil {
			return 0, err
		}
		sum += r.Waits.Mean()
	}
	return sum / float64(len(seeds)), nil
}

// placements simulates the built-in workload with recurring jobs. It compares schedulers that differ in their knowledge
// of the run times.
func placements(w io.Writer, seeds []uint64) error {
	model, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return err
	}
	policy, err := place.ByName("qla")
	if err != nil {
		return err
	}
	c := sim.Config{GPUs: slices.Repeat([]*mig.Model{model.Select(mig.Plain)}, gpus), Policy: policy}
	for _, queue := range []struct {
		name       string
		discipline sim.Discipline
	}{{"FIFO", sim.FIFO}, {"EASY", sim.EASY}} {
		c.Discipline = queue.discipline
		var failed error
		err := table(
			w,
			"mean wait in s with "+queue.name+" and qla; run times from, uniform6, skew-small, bimodal, four-equal",
			func(row func(string, ...any)) {
				for _, e := range estimators {
					values := []any{e.name}
					for _, mix := range trace.Mixes {
						mean, err := e.meanWait(c, mix.Mix, seeds)
						if err != nil {
							failed = err
							return
						}
						values = append(values, mean)
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
