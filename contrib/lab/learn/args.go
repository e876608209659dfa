package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"caelum/internal/core/predict"
)

// argWorks is the number of jobs in a population of the args command.
const argWorks = 500

// arguments describes a population of jobs whose scripts have a number in their arguments. Each job has 5 to 20
// numbers, which are log-uniform within a factor of 8. Each submission has one of them or, with a probability of 10%, a
// new one. The peak follows the number, and the work's level is the peak of the largest possible one. If peak is nil,
// each submission has a number of its own, which has no effect.
type arguments struct {
	name  string
	sigma float64 // of the logarithm of the peak, from run to run
	// peak returns the peak, relative to that of the largest number. share is the number divided by the largest, and
	// offset a number from 0 to 0.8 that is drawn for each job.
	peak func(share, offset float64) float64
}

func argPopulations() (all []arguments) {
	for _, sigma := range []float64{0, 0.05} {
		all = append(all,
			arguments{"linear with offset", sigma, func(u, offset float64) float64 { return offset + (1-offset)*u }},
			arguments{"power 0.7", sigma, func(u, _ float64) float64 { return math.Pow(u, 0.7) }},
			arguments{"quadratic", sigma, func(u, _ float64) float64 { return u * u }})
	}
	return append(all, arguments{"a seed", 0.1, nil}, arguments{"a seed", 0.3, nil})
}

// submissions returns a job's submissions with their arguments. The job has no versions, no drift and no outliers, and
// is otherwise like those of the standard population.
func (a arguments) submissions(rng *rand.Rand, w work) []submission {
	w.noise, w.drift, w.outliers, w.versions = 0, 0, false, false
	top, offset := 100*math.Pow(1e4, rng.Float64()), 0.8*rng.Float64()
	number := func() float64 { return math.Ceil(top * math.Pow(8, -rng.Float64())) }
	if a.peak == nil {
		number = func() float64 { return float64(rng.IntN(1e6)) }
	}
	usual := make([]float64, 5+rng.IntN(16))
	for k := range usual {
		usual[k] = number()
	}
	all := w.submissions(rng)
	for k := range all {
		s := &all[k]
		x := usual[rng.IntN(len(usual))]
		if a.peak == nil || rng.Float64() < 0.1 {
			x = number()
		}
		s.args = []float64{x}
		if a.peak != nil {
			s.peak *= a.peak(x/top, offset)
		}
		s.peak = min(s.peak*math.Exp(a.sigma*rng.NormFloat64()), 39<<10)
	}
	return all
}

// related returns the profile of a job's next run from the steps of its args line, as package learn does for the
// default profile of a whole GPU.
func (n node) related(runs []predict.Run, args []float64) string {
	if r, ok := predict.Related(predict.History{Level: predict.ByKey, Runs: runs}, predict.DefaultSite); ok {
		steps, ok := r.Steps(func(need predict.Need) string {
			need.HighestMiB = min(need.HighestMiB, n.memory(n.whole))
			p, _ := need.On(n.model, n.all)
			return p
		}, func(string) string { return n.whole })
		if profile, has := steps.Profile(args); ok && has {
			return profile
		}
	}
	return n.predicted(runs, predict.DefaultSite, n.whole)
}

// simulate returns the score of the repeats, and the memory of the tightest profiles.
func (a arguments) simulate(n node, seeds []uint64, relation bool) (all score, best float64) {
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		people := drawUsers(rng, users)
		for range argWorks {
			w := standard.drawWork(rng, people)
			h := history{rule: caelum(), node: n}
			for k, s := range a.submissions(rng, w) {
				if relation {
					h.choose = func(n node, runs []predict.Run) string { return n.related(runs, s.args) }
				}
				h.runs = h.runs[max(0, len(h.runs)-64):] // as many as package repo returns
				if one := h.submit(w, s); k > 0 {
					all.add(one)
					best += n.memory(n.tightest(s.peak))
				}
			}
		}
	}
	return all, best
}

// compareArgs prints three figures for each population, without and with the relation, and the smallest possible share
// of a GPU.
func compareArgs(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	head := "the argument is or the memory follows it, sigma, without the relation, with it, smallest share"
	return table(w, head, func(row func(string, ...any)) {
		for _, a := range argPopulations() {
			cells := []any{a.name, a.sigma}
			var least float64
			for _, relation := range []bool{false, true} {
				s, best := a.simulate(n, seeds, relation)
				share := func(mib float64) float64 { return 100 * mib / float64(s.repeats) / n.memory(n.whole) }
				cells = append(cells, fmt.Sprintf("%.1f%% / %.2f%% / %.1f%%", s.of(s.tight), s.of(s.killed),
					share(s.given)))
				least = share(best)
			}
			row("%s, %g, %s, %s, %.1f%%", append(cells, least)...)
		}
	})
}
