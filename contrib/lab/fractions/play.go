package main

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// outcome holds the means over the jobs of one or more simulations, in seconds. full are the jobs that need a whole
// GPU, and small the other jobs.
type outcome struct {
	wait, full, small, turnaround float64
	layouts                       string
}

func ownLimits(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// mean returns the mean of the outcomes.
func mean(all []outcome) (m outcome) {
	n := float64(len(all))
	for _, o := range all {
		m.wait, m.full = m.wait+o.wait/n, m.full+o.full/n
		m.small, m.turnaround = m.small+o.small/n, m.turnaround+o.turnaround/n
	}
	return m
}

// observer adds up the waits by class.
type observer struct {
	full  map[string]bool // by job ID
	waits [2]float64      // of the other jobs and of the jobs that need a whole GPU
	jobs  [2]int
}

func (o *observer) Passed(from, to float64, busy, waiting int, frag float64) {}
func (o *observer) Ran(s sim.Span)                                           {}
func (o *observer) Waited(job string, wait float64) {
	class := 0
	if o.full[job] {
		class = 1
	}
	o.waits[class], o.jobs[class] = o.waits[class]+wait, o.jobs[class]+1
}

// run simulates the jobs.
func run(c sim.Config, jobs []trace.Job) (outcome, error) {
	o := &observer{full: map[string]bool{}}
	for _, j := range jobs {
		name, _ := j.On(c.GPUs[0])
		o.full[j.ID] = name == mig.Full
	}
	c.Observer = o
	r, err := sim.Run(c, slices.Values(jobs))
	if err != nil {
		return outcome{}, err
	}
	of := func(class int) float64 { return o.waits[class] / float64(max(o.jobs[class], 1)) }
	return outcome{wait: r.Waits.Mean(), small: of(0), full: of(1), turnaround: r.MeanTurnaround()}, nil
}

// ways holds the outcomes of the ways to use the GPUs. fixed has the best fixed layouts for the mean wait, and fixedEnd
// for the mean turnaround. Both are found for these very jobs. shards are fractions with the first-fit policy, which
// resembles slurmctld's choice of a GPU for shards.
type ways struct{ whole, fixed, fixedEnd, shards, fractions outcome }

// compare simulates the jobs in all ways.
func compare(c sim.Config, jobs []trace.Job) (w ways, err error) {
	b := c.GPUs[0]
	static := func(p sim.Pattern) (outcome, error) {
		s := c
		s.Static = p.Deal(len(c.GPUs))
		o, err := run(s, jobs)
		o.layouts = p.Names(b)
		return o, err
	}
	if w.whole, err = static(sim.Pattern{b.Full()}); err != nil {
		return w, err
	}
	w.fixed, w.fixedEnd = w.whole, w.whole
	tried, err := candidates(c, jobs)
	if err != nil {
		return w, err
	}
	for p := range tried {
		o, err := static(p)
		if err != nil {
			return w, err
		}
		if o.wait < w.fixed.wait {
			w.fixed = o
		}
		if o.turnaround < w.fixedEnd.turnaround {
			w.fixedEnd = o
		}
	}
	for policy, o := range map[string]*outcome{"first-fit": &w.shards, place.DefaultPolicy: &w.fractions} {
		s := c
		if s.Policy, err = place.ByName(policy); err == nil {
			*o, err = run(s, jobs)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// mostKinds is the largest number of layouts of a GPU for which all patterns are tried. A GPU with four units has four.
const mostKinds = 4

// candidates returns the patterns of fixed layouts to try, which can hold every job: all patterns if the GPUs have few
// layouts, and otherwise the one that sim.BestStatic finds. It omits patterns that are hopelessly overloaded.
func candidates(c sim.Config, jobs []trace.Job) (iter.Seq[sim.Pattern], error) {
	b := c.GPUs[0]
	layouts := kinds(b)
	if len(layouts) > mostKinds {
		shorter := func(a, b *sim.Result) bool { return a.Waits.Mean() < b.Waits.Mean() }
		p, err := sim.BestStatic(c, jobs, shorter, nil)
		return slices.Values([]sim.Pattern{p}), err
	}
	return func(yield func(sim.Pattern) bool) {
		for p := range patterns(layouts, len(c.GPUs)) {
			if !overloaded(b, p, jobs) && !yield(p) {
				return
			}
		}
	}, nil
}

// mostLoad is the load above which a pattern is overloaded. The waits with such a pattern grow by more than a fifth of
// the time during which jobs are submitted.
const mostLoad = 1.5

// overloaded reports whether the jobs of some size, or larger jobs, need much more time than the slices that are large
// enough for them have between the first and the last submission, or whether there are no such slices.
func overloaded(b *mig.Model, p sim.Pattern, jobs []trace.Job) bool {
	span, size := jobs[len(jobs)-1].Submit-jobs[0].Submit, units(b)
	for _, of := range b.Profiles {
		work, slots := 0.0, 0
		for _, j := range jobs {
			if size(j) >= float64(of.Size) {
				work += j.Duration
			}
		}
		for _, l := range p {
			for i := range l.Indices() {
				if b.Placements[i].Size >= of.Size {
					slots++
				}
			}
		}
		if work > mostLoad*float64(slots)*span {
			return true
		}
	}
	return false
}

// kinds returns the layouts of a GPU that cannot hold a further fraction, one for each set of profiles.
func kinds(b *mig.Model) (all []mig.Layout) {
	var known []string
	for _, l := range b.Maximal() {
		if name := (sim.Pattern{l}).Names(b); !slices.Contains(known, name) {
			all, known = append(all, l), append(known, name)
		}
	}
	return all
}

// patterns returns all ways to give each of n GPUs one of the layouts. The order of the GPUs does not matter.
func patterns(layouts []mig.Layout, n int) iter.Seq[sim.Pattern] {
	return func(yield func(sim.Pattern) bool) {
		var extend func(p sim.Pattern, from int) bool
		extend = func(p sim.Pattern, from int) bool {
			if len(p) == n {
				return yield(slices.Clone(p))
			}
			for k := from; k < len(layouts); k++ {
				if !extend(append(p, layouts[k]), k) {
					return false
				}
			}
			return true
		}
		extend(nil, 0)
	}
}
