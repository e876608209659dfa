package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"caelum/contrib/lab/ends"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

const (
	gpus      = 16
	perNode   = 4 // the number of GPUs per node, for jobs that start through offers
	churnJobs = 4000
	recurring = 20 // the number of scripts for each profile; each job runs one of them
)

// scatter contains the standard deviation of the logarithm of the run times for each of two kinds of scripts.
type scatter [2]float64

// churn generates the built-in workload with recurring jobs. The arrivals and profiles come from trace.Churn at load
// 0.85. Each profile has twenty scripts, and each job runs one of them. The scripts' typical run times are
// exponentially distributed. The run times of each script are lognormally distributed around its typical run time. Both
// values of sigma are equally likely. The time limit of a job is 1 to 6 times the typical run time, and at least the
// run time of the job. All durations are multiplied by the same factor, so that the jobs request as many unit-seconds
// as the built-in workload.
func churn(b *mig.Model, mix trace.Mix, sigmas scatter, seed uint64) (jobs []trace.Job, scripts map[string]string) {
	rng := rand.New(rand.NewPCG(seed, 11))
	type kind struct{ typical, sigma, limit float64 }
	kinds := map[string]kind{}
	scripts = map[string]string{}
	before, after := 0.0, 0.0 // unit-seconds
	for j := range (trace.Churn{Mix: mix, Jobs: churnJobs, GPUs: gpus, Load: 0.85, Seed: seed}).All() {
		key := j.Profile + string(rune('A'+rng.IntN(recurring)))
		k, known := kinds[key]
		if !known {
			k.typical, k.sigma = 3600*rng.ExpFloat64(), sigmas[rng.IntN(2)]
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

// memory learns run times during a simulation. It observes when runs end, and estimates a job's run time from the runs
// that ended before the job was submitted.
type memory struct {
	scripts map[string]string // the key of each job's script
	running []sim.Span
	past    map[string][]predict.Run
	highs   map[string]float64 // by job: the 90% quantile of the run time in seconds
}

func (m *memory) Passed(_, _ float64, _, _ int, _ float64) {}
func (m *memory) Waited(string, float64)                   {}
func (m *memory) Ran(s sim.Span)                           { m.running = append(m.running, s) }

// estimate returns the predicted run time of a job in seconds, based on the runs of its script that ended before the
// job was submitted. If there are no such runs, it returns the job's time limit.
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
	m.highs[j.ID] = need.High
	return min(need.Seconds, j.Limit)
}

// high returns the 90% quantile of a job's run time in seconds, or 0 if the quantile is unknown. estimate must be
// called first.
func (m *memory) high(j trace.Job) float64 { return m.highs[j.ID] }

// estimator is a source of expected run times. Its set function assigns the Estimate, High, Corrector and Observer
// fields of a simulation.
type estimator struct {
	name string
	set  func(c *sim.Config, scripts map[string]string)
}

var estimators = []estimator{
	{"the real ends", func(*sim.Config, map[string]string) {}},
	{"the limits", byLimits},
	{"the limits and Ends", corrected(byLimits)},
	{"the scripts' medians", byMedians},
	{"the scripts' runs and Ends", corrected(byMedians)},
	{"Caelum", byRuns},
}

func byLimits(c *sim.Config, _ map[string]string) {
	c.Estimate = func(j trace.Job) float64 { return j.Limit }
}

func byMedians(c *sim.Config, scripts map[string]string) {
	byRuns(c, scripts)
	c.High = nil
}

func byRuns(c *sim.Config, scripts map[string]string) {
	m := &memory{scripts: scripts, past: map[string][]predict.Run{}, highs: map[string]float64{}}
	c.Estimate, c.High, c.Observer = m.estimate, m.high, m
}

// corrected returns a function that sets the same estimates as set, but also makes the simulation correct them .
func corrected(set func(*sim.Config, map[string]string)) func(*sim.Config, map[string]string) {
	return func(c *sim.Config, scripts map[string]string) {
		set(c, scripts)
		c.Corrector = ends.New
	}
}

// meanWait simulates the built-in workload once for each seed and returns the average of the mean waits in seconds.
func (e estimator) meanWait(c sim.Config, mix trace.Mix, sigmas scatter, seeds []uint64) (float64, error) {
	sum := 0.0
	for _, seed := range seeds {
		jobs, scripts := churn(c.GPUs[0], mix, sigmas, seed)
		e.set(&c, scripts)
		r, err := sim.Run(c, slices.Values(jobs))
		if err != nil {
			return 0, err
		}
		sum += r.Waits.Mean()
	}
	return sum / float64(len(seeds)), nil
}

// placements simulates the built-in workload with recurring jobs and compares schedulers with different knowledge of
// the run times.
func placements(w io.Writer, seeds []uint64) error {
	model, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return err
	}
	c := sim.Config{GPUs: slices.Repeat([]*mig.Model{model.Select(mig.Plain)}, gpus), Policy: place.Lifetime{}}
	for _, sigmas := range []scatter{{0.05, 0.4}, {0.2, 1}} {
		for _, queue := range []string{"FIFO", "EASY", "offers"} {
			if c.Discipline = sim.FIFO; queue != "FIFO" {
				c.Discipline = sim.EASY
			}
			if c.Offers, c.Nodes = queue == "offers", nil; c.Offers {
				c.Nodes = slices.Repeat([]int{perNode}, gpus/perNode)
			}
			title := fmt.Sprintf("mean wait in s: %s; sigma %v or %v; run times from, ", queue, sigmas[0], sigmas[1])
			if err := placement(w, c, title, sigmas, seeds); err != nil {
				return err
			}
		}
	}
	return nil
}

// placement prints one of the tables of placements, with a row for each estimator and a column for each mix.
func placement(w io.Writer, c sim.Config, title string, sigmas scatter, seeds []uint64) error {
	var failed error
	err := table(w, title+"uniform6, skew-small, bimodal, four-equal", func(row func(string, ...any)) {
		for _, e := range estimators {
			values := []any{e.name}
			for _, mix := range trace.Mixes {
				mean, err := e.meanWait(c, mix.Mix, sigmas, seeds)
				if err != nil {
					failed = err
					return
				}
				values = append(values, mean)
			}
			row("%s, %.0f, %.0f, %.0f, %.0f", values...)
		}
	})
	return errors.Join(failed, err)
}
