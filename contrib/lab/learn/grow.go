package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// growModes lists the values of the grow setting that compareGrow compares.
var growModes = []string{"off", "oom", "forecast"}

// compareGrow prints one table per population, with a row for each combination of mode and profile for unknown jobs. In
// the last table, the jobs report their memory use.
func compareGrow(w io.Writer, seeds []uint64) error {
	n, err := newNode()
	if err != nil {
		return err
	}
	small := n.tightest(0)
	for _, p := range growings {
		if err := growTable(w, n, p, p.name, growModes, []string{n.whole, small}, site{}, seeds); err != nil {
			return err
		}
	}
	p := growings[len(growings)-1]
	return growTable(w, n, p, p.name+", with reports", growModes[1:], []string{small}, site{reports: true}, seeds)
}

func growTable(
	w io.Writer, n node, p growing, title string, modes, unknown []string, s site, seeds []uint64,
) (failed error) {
	fmt.Fprintf(w, "%s:\n\n", title)
	head := "profile of unknown jobs, grow, GPU-hours lost, of all GPU-hours, mean turnaround in h, " +
		"of jobs that ran out of memory, failures seen by users, requeues, before a failure, needless"
	err := table(w, head, func(row func(string, ...any)) {
		for _, s.profile = range unknown {
			for _, s.grow = range modes {
				var all growTally
				for _, seed := range seeds {
					one, err := p.play(n, s, seed)
					if err != nil {
						failed = err
						return
					}
					all.add(one)
				}
				row("%s, %s, %.0f, %.2f%%, %.2f, %.2f, %d, %d, %d, %d", s.profile, s.grow, all.lost/3600,
					100*all.lost/all.used, all.turnaround/3600/float64(all.jobs), all.affected/3600/float64(all.ran),
					all.failures, all.requeues, all.stopped, all.needless)
			}
		}
	})
	return errors.Join(failed, err)
}

// play simulates a population with EASY backfill. The users' time limits are used as the expected run times.
func (p growing) play(n node, s site, seed uint64) (growTally, error) {
	all := p.draw(n, seed)
	g := newGrowth(n, s, all, seed)
	if err := simulateGrowth(n, growGPUs, g, all); err != nil {
		return growTally{}, fmt.Errorf("%s, seed %d: %w", p.name, seed, err)
	}
	return g.growTally, nil
}

func simulateGrowth(n node, gpus int, g sim.Growth, all []*arrival) error {
	jobs := make([]trace.Job, len(all))
	for k, a := range all {
		jobs[k] = a.Job
	}
	_, err := sim.Run(sim.Config{
		GPUs:       slices.Repeat([]*mig.Model{n.model}, gpus),
		Policy:     place.Lifetime{},
		Discipline: sim.EASY,
		Estimate:   func(j trace.Job) float64 { return j.Limit },
		Growth:     g,
	}, slices.Values(jobs))
	return err
}

func (t *growTally) add(o growTally) {
	t.jobs, t.turnaround = t.jobs+o.jobs, t.turnaround+o.turnaround
	t.ran, t.affected = t.ran+o.ran, t.affected+o.affected
	t.used, t.lost = t.used+o.used, t.lost+o.lost
	t.failures, t.requeues, t.needless = t.failures+o.failures, t.requeues+o.requeues, t.needless+o.needless
	t.stopped += o.stopped
}
