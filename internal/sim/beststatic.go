package sim

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// Pattern is a list of fixed layouts. The first GPU is given the first layout, the second GPU the second layout, and so
// on. If there are more GPUs than layouts, the pattern is repeated.
type Pattern []mig.Layout

// Deal returns the layout of each of n GPUs.
func (p Pattern) Deal(n int) []mig.Layout {
	all := make([]mig.Layout, n)
	for k := range all {
		all[k] = p[k%len(p)]
	}
	return all
}

// Names formats the layouts as lists of profiles, for example 7g.40gb / 4g.20gb 3g.20gb.
func (p Pattern) Names(b *mig.Model) string {
	var all []string
	for k, l := range p {
		if k > 0 && l == p[k-1] {
			continue
		}
		times := 1
		for k+times < len(p) && p[k+times] == l {
			times++
		}
		var names []string
		for i := range l.Indices() {
			names = append(names, b.ProfileOf(i))
		}
		slices.Reverse(names) // in descending order
		name := strings.Join(names, " ")
		if times > 1 {
			name = fmt.Sprintf("%d x (%s)", times, name)
		}
		all = append(all, name)
	}
	return strings.Join(all, " / ")
}

// ParsePattern parses the format that Names writes. A layout can have a repetition count, as in 7g.40gb / 3 x (4g.20gb
// 3g.20gb). If the GPU model does not support a layout, the error names it.
func ParsePattern(b *mig.Model, text string) (Pattern, error) {
	var p Pattern
	for _, part := range strings.Split(text, "/") {
		times, inner := 1, strings.TrimSpace(part)
		if n, rest, ok := strings.Cut(inner, " x ("); ok && strings.HasSuffix(rest, ")") {
			var err error
			if times, err = strconv.Atoi(n); err != nil || times < 1 || times > 1000 {
				return nil, fmt.Errorf("%q: the number before x must be from 1 to 1000", inner)
			}
			inner = strings.TrimSuffix(rest, ")")
		}
		names := strings.Fields(inner)
		slices.Sort(names)
		k := slices.IndexFunc(b.Layouts(), func(l mig.Layout) bool {
			return l != 0 && slices.Equal(slices.Sorted(slices.Values(strings.Fields((Pattern{l}).Names(b)))), names)
		})
		if k < 0 {
			return nil, fmt.Errorf("the GPU model %s does not support the layout %q", b.Name, inner)
		}
		p = append(p, slices.Repeat(Pattern{b.Layouts()[k]}, times)...)
	}
	return p, nil
}

// BestStatic searches for the pattern of fixed layouts that gives the best result for the jobs. This is an estimate of
// the best result that fixed layouts can achieve if the administrator knows the workload in advance. better reports
// whether result a is better than result b. All GPUs must be of the same model. The search is not exhaustive: it tries
// the following patterns and skips any pattern that cannot hold every job:
//
//   - whole GPUs
//   - every maximal layout L with a different set of profiles
//   - whole GPUs and L in the ratios 1:1, 2:1 and 1:2
//   - one whole GPU and L on all other GPUs, and one GPU with L and all other GPUs whole
//   - each pair of the four best L, with and without whole GPUs between them
//
// BestStatic does not call the Observer.
func BestStatic(c Config, jobs iter.Seq[trace.Job], better func(a, b *Result) bool) (Pattern, error) {
	model := c.GPUs[0]
	if !Alike(c.GPUs) {
		return nil, errors.New("couldn't search for the best fixed layouts: " +
			"there are several GPU models; specify GPUs of one model")
	}
	c.Observer = nil
	s := &search{c: c, jobs: jobs, better: better, needs: map[string]bool{}}
	for j := range jobs {
		if name, ok := j.On(model); ok {
			s.needs[name] = true
		}
	}
	whole, ok := OneInstance(model)
	if !ok {
		return nil, fmt.Errorf("couldn't search for the best fixed layouts: %s has no profile for a whole GPU",
			model.Name)
	}
	s.evaluate(Pattern{whole})
	var ranked []found
	n := len(c.GPUs)
	for _, l := range contents(model, whole) {
		var best *Result
		one := append(Pattern{whole}, slices.Repeat(Pattern{l}, n-1)...)
		all := append(Pattern{l}, slices.Repeat(Pattern{whole}, n-1)...)
		for _, p := range []Pattern{{l}, {whole, l}, {whole, whole, l}, {whole, l, l}, one, all} {
			if r := s.evaluate(p); r != nil && (best == nil || better(r, best)) {
				best = r
			}
		}
		if best != nil {
			ranked = append(ranked, found{l, best})
		}
	}
	slices.SortStableFunc(ranked, func(a, b found) int {
		switch {
		case better(a.result, b.result):
			return -1
		case better(b.result, a.result):
			return 1
		}
		return 0
	})
	ranked = ranked[:min(len(ranked), 4)]
	for i, a := range ranked {
		for _, b := range ranked[i+1:] {
			s.evaluate(Pattern{a.layout, b.layout})
			s.evaluate(Pattern{whole, a.layout, whole, b.layout})
		}
	}
	if s.best == nil && s.err == nil {
		s.err = fmt.Errorf("couldn't search for the best fixed layouts: no pattern can hold every job")
	}
	return s.pattern, s.err
}

// found is a layout and the best result over all patterns that contain it.
type found struct {
	layout mig.Layout
	result *Result
}

// search is the state of BestStatic.
type search struct {
	c      Config
	jobs   iter.Seq[trace.Job]
	better func(a, b *Result) bool
	needs  map[string]bool
	err    error

	pattern Pattern // the best pattern so far
	best    *Result
}

// evaluate simulates the jobs with a pattern and records the pattern if its result is better than that of every earlier
// pattern. It returns nil if the pattern cannot hold all jobs.
func (s *search) evaluate(p Pattern) *Result {
	b := s.c.GPUs[0]
	for name := range s.needs {
		if !slices.ContainsFunc(p[:min(len(p), len(s.c.GPUs))], func(l mig.Layout) bool { return holds(b, l, name) }) {
			return nil
		}
	}
	c := s.c
	c.Policy, c.Static = nil, p.Deal(len(c.GPUs))
	r, err := Run(c, s.jobs)
	if errors.Is(err, ErrNever) {
		return nil // a job needs more slices at the same time than the pattern has
	} else if err != nil {
		s.err = err
		return nil
	}
	if s.best == nil || s.better(r, s.best) {
		s.pattern, s.best = p, r
	}
	return r
}

// holds reports whether the layout has a slice that is large enough for the profile.
func holds(b *mig.Model, l mig.Layout, profile string) bool {
	p, ok := b.ProfileIndex(profile)
	if !ok {
		return false
	}
	for i := range l.Indices() {
		if enough(b.Profiles[b.Placements[i].Profile], b.Profiles[p]) {
			return true
		}
	}
	return false
}

// enough reports whether a slice with one profile (has) is large enough for a job that needs another profile (needs).
// Only a full GPU is sufficient for a job that needs mig.Full, because such a job may use several GPUs together.
func enough(has, needs mig.Profile) bool {
	return needs.Size <= has.Size && needs.Compute <= has.Compute && (needs.Name != mig.Full || has.Name == mig.Full)
}

// contents returns the maximal layouts other than the whole GPU. Of several layouts with the same profiles, it returns
// only the first.
func contents(b *mig.Model, whole mig.Layout) (all []mig.Layout) {
	seen := map[string]bool{}
	for _, l := range b.Maximal() {
		if name := (Pattern{l}).Names(b); l != whole && !seen[name] {
			seen[name] = true
			all = append(all, l)
		}
	}
	return all
}

// OneInstance returns the layout with a single instance that uses the whole GPU. It returns false if no profile of the
// GPU model spans the whole GPU.
func OneInstance(b *mig.Model) (mig.Layout, bool) {
	i := slices.IndexFunc(b.Placements, func(p mig.Placement) bool { return p.Size == b.Grid })
	if i < 0 {
		return 0, false
	}
	return mig.Layout(0).With(i), true
}
