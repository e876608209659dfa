package main

import (
	"cmp"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"caelum/contrib/lab/ends"
	"caelum/internal/core/predict"
)

// task is one submission of a script.
type task struct {
	key, user       int
	at              float64
	seconds, limit  float64
	complete, first bool
}

// tasks returns a population's runs in order of submission. Each recurring job is first submitted at a random time
// during the year, and then once a day on average.
func tasks(seed uint64) (all []task) {
	rng := rand.New(rand.NewPCG(seed, 7))
	people := drawUsers(rng, users)
	key := 0
	for range works {
		w := standard.drawWork(rng, people)
		at, script := 365*rng.Float64(), -1
		for _, s := range w.submissions(rng) {
			first := s.script != script
			if first {
				key, script = key+1, s.script
			}
			at += rng.ExpFloat64()
			all = append(all, task{
				key:      key,
				user:     w.user,
				at:       at,
				seconds:  s.seconds * s.until,
				limit:    w.limit,
				complete: s.state == "COMPLETED" || s.state == "TIMEOUT",
				first:    first,
			})
		}
	}
	slices.SortFunc(all, func(a, b task) int { return cmp.Compare(a.at, b.at) })
	return all
}

// past holds the data that a prediction can use when a task is submitted. All times are logarithms of seconds.
type past struct {
	ends    ends.Ends
	byKey   map[int][]predict.Run
	byUser  map[int][]float64
	ratios  map[int][]float64 // the ratios of run time to limit, by user
	fitted  *mat.VecDense
	x, y    []float64 // the input to the regression: feature rows and results
	learned int
}

const features = 4

// known returns the features of a task: a constant, the limit, the user's mean run time, and the user's mean ratio of
// run time to limit.
func (p *past) known(t task) []float64 {
	limit := math.Log(t.limit)
	if len(p.byUser[t.user]) == 0 {
		return []float64{1, limit, limit, 0}
	}
	return []float64{1, limit, stat.Mean(p.byUser[t.user], nil), stat.Mean(p.ratios[t.user], nil)}
}

// regress returns the prediction of a least-squares fit over the tasks that have completed so far. It recomputes the
// fit every 500 tasks.
func (p *past) regress(t task) float64 {
	if n := len(p.y); n >= 100 && n >= p.learned+500 {
		p.learned = n
		fitted := mat.NewVecDense(features, nil)
		if fitted.SolveVec(mat.NewDense(n, features, p.x), mat.NewVecDense(n, p.y)) == nil {
			p.fitted = fitted
		}
	}
	if p.fitted == nil {
		return math.Log(t.limit)
	}
	return mat.Dot(p.fitted, mat.NewVecDense(features, p.known(t)))
}

func (p *past) finished(t task) {
	if !t.complete {
		return
	}
	p.x, p.y = append(p.x, p.known(t)...), append(p.y, math.Log(t.seconds))
	p.ends.Finished(t.limit, t.seconds)
	p.byKey[t.key] = append(
		p.byKey[t.key],
		predict.Run{Job: uint32(len(p.y)), State: "COMPLETED", Seconds: t.seconds, Samples: 1, Util: -1},
	)
	p.byUser[t.user] = append(p.byUser[t.user], math.Log(t.seconds))
	p.ratios[t.user] = append(p.ratios[t.user], math.Log(t.seconds/t.limit))
}

// guess is a method of predicting the logarithm of a task's run time in seconds.
type guess struct {
	name    string
	predict func(p *past, t task) float64
}

func (p *past) expected(t task) float64 {
	total, _ := p.ends.Expect(t.limit, 0)
	return math.Log(total)
}

var strangers = []guess{
	{"the job's time limit", func(_ *past, t task) float64 { return math.Log(t.limit) }},
	{"the limit times the mean ratio of all jobs (Ends)", (*past).expected},
	{"the mean run time of the user's jobs", func(p *past, t task) float64 {
		if len(p.byUser[t.user]) == 0 {
			return p.expected(t)
		}
		return stat.Mean(p.byUser[t.user], nil)
	}},
	{"the limit times the mean ratio of the user's jobs", func(p *past, t task) float64 {
		if len(p.ratios[t.user]) == 0 {
			return p.expected(t)
		}
		return math.Log(t.limit) + stat.Mean(p.ratios[t.user], nil)
	}},
	{"a regression", (*past).regress},
}

var acquaintances = []guess{
	{"the job's time limit", strangers[0].predict},
	{"the limit times the mean ratio of all jobs (Ends)", strangers[1].predict},
	{"the run time of the last run", func(p *past, t task) float64 {
		runs := p.byKey[t.key]
		return math.Log(runs[len(runs)-1].Seconds)
	}},
	{"the mean run time of all runs", func(p *past, t task) float64 {
		sum := 0.0
		for _, r := range p.byKey[t.key] {
			sum += r.Seconds
		}
		return math.Log(sum / float64(len(p.byKey[t.key])))
	}},
	{"Caelum (the median run time of the last 20 runs)", func(p *past, t task) float64 {
		need, _ := predict.Predict(predict.History{Runs: p.byKey[t.key]}, predict.DefaultSite)
		return math.Log(need.Seconds)
	}},
}

// compareRuntimes prints the errors of the guesses as factors, separately for keys with and without earlier runs. It
// also prints the mean waits when placement uses the predictions.
func compareRuntimes(w io.Writer, seeds []uint64) error {
	off := map[string][]float64{}
	inside, of := 0, 0
	for _, seed := range seeds {
		in, all := follow(seed, off)
		inside, of = inside+in, of+all
	}
	for _, group := range []struct {
		name    string
		prefix  string
		guesses []guess
	}{
		{"prediction for keys without earlier runs", "new ", strangers},
		{"prediction for keys with earlier runs", "known ", acquaintances},
	} {
		head := group.name + ", jobs, factor between prediction and run time: median, mean, 90% quantile"
		if err := table(w, head, func(row func(string, ...any)) {
			for _, g := range group.guesses {
				errs := off[group.prefix+g.name]
				row("%s, %d, %.2f, %.2f, %.2f", g.name, len(errs), math.Exp(quantile(errs, 0.5)),
					math.Exp(stat.Mean(errs, nil)), math.Exp(quantile(errs, 0.9)))
			}
		}); err != nil {
			return err
		}
	}
	head := "runs with a run time between Low and High (target: 80%), runs"
	if err := table(w, head, func(row func(string, ...any)) {
		row("%.1f%%, %d", 100*float64(inside)/float64(of), of)
	}); err != nil {
		return err
	}
	return placements(w, seeds)
}

// For each completed task, follow appends each guess's logarithmic error to off. It returns the number of run times
// that were between Low and High and the number of run times that had been predicted.
func follow(seed uint64, off map[string][]float64) (inside, of int) {
	p := past{byKey: map[int][]predict.Run{}, byUser: map[int][]float64{}, ratios: map[int][]float64{}}
	for _, t := range tasks(seed) {
		known := len(p.byKey[t.key]) > 0
		group, guesses := "new ", strangers
		if known {
			group, guesses = "known ", acquaintances
		}
		if t.complete && (known || t.first) {
			for _, g := range guesses {
				off[group+g.name] = append(off[group+g.name], math.Abs(g.predict(&p, t)-math.Log(t.seconds)))
			}
		}
		if t.complete && known {
			need, _ := predict.Predict(predict.History{Runs: p.byKey[t.key]}, predict.DefaultSite)
			if of++; need.Low <= t.seconds && t.seconds <= need.High {
				inside++
			}
		}
		p.finished(t)
	}
	return inside, of
}

func quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[int(q*float64(len(sorted)-1))]
}
