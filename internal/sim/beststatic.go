package sim

import (
	"errors"
	"fmt"
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
//   - each pair of the four best L (in a sample: six), with and without whole GPUs between them
//
// In a large simulation, BestStatic first tries the patterns on a sample: on every k-th slice that the jobs need, and a
// k-th of the GPUs. It then tries the best finalists on all jobs. It does not call the Observer. It calls progress,
// which may be nil, with the completed fraction of the search.
func BestStatic(
	c Config, all []trace.Job, better func(a, b *Result) bool, progress func(fraction float64),
) (Pattern, error) {
	model := c.GPUs[0]
	if !Alike(c.GPUs) {
		return nil, errors.New("couldn't search for the best fixed layouts: " +
			"there are several GPU models; specify GPUs of one model")
	}
	whole, ok := OneInstance(model)
	if !ok {
		return nil, fmt.Errorf("couldn't search for the best fixed layouts: %s has no profile for a whole GPU",
			model.Name)
	}
	c.Observer = nil
	s := &search{better: better, needs: map[string]bool{}, paired: 4}
	var sampled bool
	if s.c, s.jobs, sampled = sample(c, all); sampled {
		s.paired = 6
	}
	for _, j := range all {
		if name, ok := j.On(model); ok {
			s.needs[name] = true
		}
	}
	layouts := contents(model, whole)
	s.step = func() {
		if s.tried++; progress != nil {
			progress(min(1, float64(s.tried)/float64(1+6*len(layouts)+s.paired*(s.paired-1)+finalists)))
		}
	}
	s.tryAll(whole, layouts, len(c.GPUs))
	if sampled {
		s.c, s.jobs = c, all
		s.confirm()
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case len(s.found) == 0:
		return nil, errors.New("couldn't search for the best fixed layouts: no pattern can hold every job")
	}
	s.sort(s.found)
	return s.found[0].pattern, nil
}

// A sample has at least sampleJobs jobs and sampleGPUs GPUs. finalists is the number of patterns that BestStatic tries
// on all jobs after it has tried all patterns on a sample.
const (
	sampleJobs = 5000
	sampleGPUs = 16
	finalists  = 5
)

// sample returns a k-th of the jobs and of the GPUs, with the largest k for a sample, or false if k is 1. A job with
// several slices becomes several jobs.
func sample(c Config, jobs []trace.Job) (Config, []trace.Job, bool) {
	var single []trace.Job
	for _, j := range jobs {
		n := max(j.Slices, 1)
		j.Slices, j.Nodes = 0, 0
		single = append(single, slices.Repeat([]trace.Job{j}, n)...)
	}
	k := min(len(single)/sampleJobs, len(c.GPUs)/sampleGPUs)
	if k <= 1 {
		return c, jobs, false
	}
	var thin []trace.Job
	for i := 0; i < len(single); i += k {
		thin = append(thin, single[i])
	}
	c.GPUs, c.Nodes = c.GPUs[:len(c.GPUs)/k], nil
	return c, thin, true
}

// tryAll tries the patterns for n GPUs listed at BestStatic on the jobs.
func (s *search) tryAll(whole mig.Layout, layouts []mig.Layout, n int) {
	s.evaluate(Pattern{whole})
	var ranked []found // the best pattern with each layout
	for _, l := range layouts {
		one := append(Pattern{whole}, slices.Repeat(Pattern{l}, n-1)...)
		all := append(Pattern{l}, slices.Repeat(Pattern{whole}, n-1)...)
		first := len(s.found)
		for _, p := range []Pattern{{l}, {whole, l}, {whole, whole, l}, {whole, l, l}, one, all} {
			s.evaluate(p)
		}
		if with := slices.Clone(s.found[first:]); len(with) > 0 {
			s.sort(with)
			ranked = append(ranked, found{Pattern{l}, with[0].result})
		}
	}
	s.sort(ranked)
	ranked = ranked[:min(len(ranked), s.paired)]
	for i, a := range ranked {
		for _, b := range ranked[i+1:] {
			s.evaluate(Pattern{a.pattern[0], b.pattern[0]})
			s.evaluate(Pattern{whole, a.pattern[0], whole, b.pattern[0]})
		}
	}
}

// confirm tries the best of the patterns found so far on the jobs, and drops the others.
func (s *search) confirm() {
	before := s.found
	s.sort(before)
	s.found = nil
	for _, f := range before {
		if len(s.found) == finalists {
			break
		}
		s.evaluate(f.pattern)
	}
}

// sort sorts patterns by their results, the best one first.
func (s *search) sort(all []found) {
	slices.SortStableFunc(all, func(a, b found) int {
		switch {
		case s.better(a.result, b.result):
			return -1
		case s.better(b.result, a.result):
			return 1
		}
		return 0
	})
}

// found is a pattern and its result.
type found struct {
	pattern Pattern
	result  *Result
}

// search is the state of BestStatic.
type search struct {
	c      Config
	jobs   []trace.Job
	better func(a, b *Result) bool
	needs  map[string]bool // the profiles that the jobs need
	paired int             // the number of the best layouts of which all pairs are tried
	found  []found         // the patterns that can hold every job
	tried  int
	step   func() // called for each pattern
	err    error
}

// evaluate simulates the jobs with a pattern and adds the pattern to s.found if it can hold all jobs.
func (s *search) evaluate(p Pattern) {
	s.step()
	b := s.c.GPUs[0]
	for name := range s.needs {
		if !slices.ContainsFunc(p[:min(len(p), len(s.c.GPUs))], func(l mig.Layout) bool { return holds(b, l, name) }) {
			return
		}
	}
	c := s.c
	c.Policy, c.Static = nil, p.Deal(len(c.GPUs))
	r, err := Run(c, slices.Values(s.jobs))
	switch {
	case errors.Is(err, ErrNever): // a job needs more slices at the same time than the pattern has
	case err != nil:
		s.err = err
	default:
		s.found = append(s.found, found{p, r})
	}
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
