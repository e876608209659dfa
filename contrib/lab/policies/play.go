package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// reference is the policy against which the others are compared.
const reference = "best-fit"

// row holds the scenarios of one row of the table, by load and mix.
type row struct {
	name  []string
	cells [][]scenario
}

// rows returns the rows of the table.
func (o options) rows() (all []row) {
	for _, gpus := range o.gpus {
		for _, queue := range o.queues {
			for _, ends := range o.ends {
				for _, unlimited := range o.unlimited {
					r := row{name: []string{gpus, queue, ends, fmt.Sprintf("%.0f%%", 100*unlimited)}}
					for _, load := range o.loads {
						var cell []scenario
						for _, mix := range o.mixes {
							cell = append(cell, scenario{queue, ends, unlimited, load, gpus, mix})
						}
						r.cells = append(r.cells, cell)
					}
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// outcome holds the results of a policy in a scenario, as means over the seeds. Waiting times are in seconds.
type outcome struct {
	mean, longest float64
	took          time.Duration // run time of the simulations
}

// outcomes maps each scenario to the results of the policies, beginning with the reference.
type outcomes map[scenario][]outcome

// simulate runs every scenario with every policy and seed.
func (o options) simulate() (outcomes, error) {
	type task struct {
		scenario
		policy int
		seed   uint64
	}
	names := append([]string{reference}, o.policies...)
	results, tasks := outcomes{}, make(chan task)
	var failed error
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range o.workers {
		workers.Go(func() {
			for t := range tasks {
				began := time.Now()
				r, err := t.run(names[t.policy], t.seed, o.jobs)
				took := time.Since(began)
				mu.Lock()
				if err != nil {
					failed = fmt.Errorf("%+v, %s, seed %d: %w", t.scenario, names[t.policy], t.seed, err)
				} else {
					got := &results[t.scenario][t.policy]
					got.mean += r.Waits.Mean() / float64(len(o.seeds))
					got.longest += r.Waits.Longest / float64(len(o.seeds))
					got.took += took
				}
				mu.Unlock()
			}
		})
	}
	all := []scenario{}
	for _, r := range o.rows() {
		for _, cell := range r.cells {
			all = append(all, cell...)
		}
	}
	for _, s := range all {
		mu.Lock()
		results[s] = make([]outcome, len(names))
		mu.Unlock()
		for p := range names {
			for _, seed := range o.seeds {
				tasks <- task{s, p, seed}
			}
		}
	}
	close(tasks)
	workers.Wait()
	return results, failed
}

// print writes the table, followed by the worst cases of each policy and the run time of its simulations.
func (o options) print(w io.Writer, results outcomes) {
	fmt.Fprint(w, "| GPUs | queue | ends | no limit |")
	for _, load := range o.loads {
		fmt.Fprintf(w, " load %v |", load)
	}
	fmt.Fprintln(w, "\n"+strings.Repeat("|---", 4+len(o.loads))+"|")
	names := append([]string{reference}, o.policies...)
	worst := make([]outcome, len(names)) // ratios
	at := make([][2]scenario, len(names))
	took := make([]time.Duration, len(names))
	for _, r := range o.rows() {
		fmt.Fprint(w, "| "+strings.Join(r.name, " | ")+" |")
		for _, cell := range r.cells {
			var ratios []string
			for p := range names {
				sum, all := 0.0, 0.0
				for _, s := range cell {
					of, base := results[s][p], results[s][0]
					mean, longest := ratio(of.mean, base.mean), ratio(of.longest, base.longest)
					sum, all = sum+of.mean, all+base.mean
					if mean > worst[p].mean {
						worst[p].mean, at[p][0] = mean, s
					}
					if longest > worst[p].longest {
						worst[p].longest, at[p][1] = longest, s
					}
					took[p] += of.took
				}
				if p > 0 {
					ratios = append(ratios, fmt.Sprintf("%.2f", sum/all))
				}
			}
			fmt.Fprint(w, " "+strings.Join(ratios, " / ")+" |")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	for p, name := range names {
		fmt.Fprintf(w, "%s: worst mean %.2f (%+v), worst longest %.2f (%+v), took %v\n", name, worst[p].mean, at[p][0],
			worst[p].longest, at[p][1], took[p].Round(time.Second))
	}
}

// least is the minimum waiting time, in seconds, for which print considers a ratio. Ratios between shorter times are
// mostly noise.
const least = 10

// ratio returns the ratio of two waiting times, or 1 if both are shorter than least.
func ratio(a, b float64) float64 {
	if max(a, b) < least {
		return 1
	}
	return a / max(b, 1)
}
