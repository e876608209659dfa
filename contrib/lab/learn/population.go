package main

import (
	"fmt"
	"io"
	"math/rand/v2"

	"caelum/internal/core/predict"
)

const (
	works = 2000
	users = 200
	tries = 5 // maximum number of runs of a job that runs out of memory
)

// score counts a rule's results for repeats, that is, for runs whose key has earlier runs.
type score struct {
	repeats, tight, killed int     // tight is the number of runs on the smallest sufficient profile
	never                  int     // the number of repeats of which all runs ran out of memory
	needed, given          float64 // MiB
}

func (s *score) add(o score) {
	s.repeats, s.tight, s.killed = s.repeats+o.repeats, s.tight+o.tight, s.killed+o.killed
	s.never += o.never
	s.needed, s.given = s.needed+o.needed, s.given+o.given
}

func (s *score) of(count int) float64 { return 100 * float64(count) / float64(max(s.repeats, 1)) }

// history holds the earlier runs of one key in the simulation of a rule.
type history struct {
	rule
	node
	runs []predict.Run
	job  uint32
}

// submit runs a submission. If it runs out of memory, it is repeated, up to tries runs in total.
func (h *history) submit(w work, s submission) (first score) {
	first = score{repeats: 1, needed: s.peak}
	for try := range tries {
		profile := h.choose(h.node, h.runs)
		memory := h.memory(profile)
		h.job++
		r, dead := w.run(s, h.job, profile, memory)
		if try == 0 {
			first.given = memory
			if memory == h.memory(h.tightest(s.peak)) {
				first.tight = 1
			}
		}
		if dead && h.kills {
			r.State, r.PeakMiB = killed, memory+1
		}
		h.runs = append(h.runs, r)
		if !dead {
			break
		}
		first.killed++
	}
	if first.killed == tries {
		first.never = 1
	}
	return first
}

// simulate applies a rule to a population. Element i of the result is the score for the runs whose key has i earlier
// runs.
func (p population) simulate(n node, r rule, seed uint64) (byRun []score) {
	rng := rand.New(rand.NewPCG(seed, 7))
	people := drawUsers(rng, users)
	for range works {
		w := p.drawWork(rng, people)
		h, script, nth := history{rule: r, node: n}, 0, 0
		for _, s := range w.submissions(rng) {
			if s.script != script {
				h, script, nth = history{rule: r, node: n}, s.script, 0
			}
			one := h.submit(w, s)
			if nth == len(byRun) {
				byRun = append(byRun, score{})
			}
			byRun[nth].add(one)
			nth++
		}
	}
	return byRun
}

// simulateAll returns the combined scores for the populations generated from several seeds.
func (p population) simulateAll(n node, r rule, seeds []uint64) (all score, byRun []score) {
	for _, seed := range seeds {
		for nth, s := range p.simulate(n, r, seed) {
			if nth == len(byRun) {
				byRun = append(byRun, score{})
			}
			byRun[nth].add(s)
			if nth > 0 {
				all.add(s)
			}
		}
	}
	return all, byRun
}

func comparePopulation(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	rules := append([]rule{wholeGPU()}, append(highest(), known(), caelum())...)
	var byRun []score
	head := "rule, repeats, repeats in the tightest profile, repeats out of memory, " +
		"unused share of the allocated memory, allocated share of a GPU"
	if err := compare(w, n, head, seeds, rules, func(_ rule, of []score) { byRun = of }); err != nil {
		return err
	}
	head = "run number for the key, runs in the tightest profile, runs that ran out of memory"
	if err := table(w, head, func(row func(string, ...any)) {
		for _, nth := range []int{1, 2, 3, 4, 5, 9, 19, 39} {
			s := byRun[nth]
			row("%d, %.1f%%, %.2f%%", nth+1, s.of(s.tight), s.of(s.killed))
		}
	}); err != nil {
		return err
	}
	return turns(w, n, rules)
}

// turns simulates jobs in which every k-th run needs twice as much memory as the other runs. For each rule, it prints
// the number of runs, out of 60, that run out of memory.
func turns(w io.Writer, n node, rules []rule) error {
	head := "runs that run out of memory, of 60 runs, k = 2, 3, 4, 5, 6, 8"
	return table(w, head, func(row func(string, ...any)) {
		for _, r := range rules[1:] {
			var dead []any
			for _, k := range []int{2, 3, 4, 5, 6, 8} {
				h, sum := history{rule: r, node: n}, 0
				for run := range 60 {
					s := submission{peak: 4000, seen: 1, seconds: 3600, state: "COMPLETED", until: 1}
					if run%k == k-1 {
						s.peak *= 2
					}
					sum += h.submit(work{population: standard, rise: 0.5}, s).killed
				}
				dead = append(dead, sum)
			}
			row("%s, %d, %d, %d, %d, %d, %d", append([]any{r.name}, dead...)...)
		}
	})
}

func tunePopulation(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	var rules []rule
	for _, window := range []int{3, 4, 5, 6, 8, 12} {
		for _, quantile := range []float64{0.15, 0.3, 0.5} {
			for _, margin := range []float64{0.05, 0.1} {
				name := fmt.Sprintf("window %d quantile %g margin %g", window, quantile, margin)
				rules = append(rules, learned(name, predict.Site{Window: window, Quantile: quantile, Margin: margin}))
			}
		}
	}
	return compare(
		w,
		n,
		"rule, repeats, repeats in the tightest profile, repeats out of memory, "+
			"unused share of the allocated memory, allocated share of a GPU",
		seeds,
		rules,
		func(rule, []score) {},
	)
}

func compare(w io.Writer, n node, head string, seeds []uint64, rules []rule, report func(rule, []score)) error {
	return table(w, head, func(row func(string, ...any)) {
		for _, r := range rules {
			s, byRun := standard.simulateAll(n, r, seeds)
			row(
				"%s, %d, %.2f%%, %.2f%%, %.1f%%, %.1f%%",
				r.name,
				s.repeats,
				s.of(s.tight),
				s.of(s.killed),
				100*(1-s.needed/s.given),
				100*s.given/float64(s.repeats)/n.memory(n.whole),
			)
			report(r, byRun)
		}
	})
}
