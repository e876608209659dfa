package sim

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"caelum/internal/mig"
	"caelum/internal/trace"
)

// Pattern is a way of cutting GPUs once and for all: the first GPU into the first layout, the second into the second, and from the
// start again when they have all been used.
type Pattern []mig.Layout

// Deal deals the layouts out over n GPUs.
func (p Pattern) Deal(n int) []mig.Layout {
	all := make([]mig.Layout, n)
	for k := range all {
		all[k] = p[k%len(p)]
	}
	return all
}

// Names says the layouts by their profiles: 7g.40gb / 4g.20gb 3g.20gb.
func (p Pattern) Names(b *mig.Board) string {
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
			names = append(names, b.Profiles[b.Placements[i].Profile].Name)
		}
		slices.Reverse(names) // profiles ascend
		name := strings.Join(names, " ")
		if times > 1 {
			name = fmt.Sprintf("%d x (%s)", times, name)
		}
		all = append(all, name)
	}
	return strings.Join(all, " / ")
}

// BestStatic looks for the pattern under which the jobs fare best, what an administrator could do with fixed layouts at best, if the
// workload were known beforehand: whole GPUs; every maximal layout L that differs from the others in what it holds; whole GPUs and L by turns,
// 1:1, 2:1 and 1:2; one of the one kind and all others of the other; and of the four best of these L each two together, with and without whole GPUs between them. That
// is not every pattern. Patterns that cannot hold every
// job are left out. The cluster must be of one board; better says which of two results is.
func BestStatic(c Config, jobs iter.Seq[trace.Job], better func(a, b *Result) bool) (Pattern, *Result, error) {
	board := c.GPUs[0]
	if slices.ContainsFunc(c.GPUs, func(b *mig.Board) bool { return b != board }) {
		return nil, nil, fmt.Errorf("the best fixed layouts are looked for on one board at a time")
	}
	s := &search{c: c, jobs: jobs, better: better, needs: map[string]bool{}}
	for j := range jobs {
		if name, ok := j.On(board); ok {
			s.needs[name] = true
		}
	}
	whole, others := contents(board)
	if whole == 0 {
		return nil, nil, fmt.Errorf("%s has no profile of a whole GPU here", board.Name)
	}
	s.try(Pattern{whole})
	var ranked []found
	for _, l := range others {
		var best *Result
		n := len(c.GPUs)
		one := append(Pattern{whole}, slices.Repeat(Pattern{l}, n-1)...)
		all := append(Pattern{l}, slices.Repeat(Pattern{whole}, n-1)...)
		for _, p := range []Pattern{{l}, {whole, l}, {whole, whole, l}, {whole, l, l}, one, all} {
			if r := s.try(p); r != nil && (best == nil || better(r, best)) {
				best = r
			}
		}
		if best != nil {
			ranked = append(ranked, found{Pattern{l}, best})
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
			s.try(Pattern{a.pattern[0], b.pattern[0]})
			s.try(Pattern{whole, a.pattern[0], whole, b.pattern[0]})
		}
	}
	if s.best.result == nil && s.err == nil {
		s.err = fmt.Errorf("no pattern of layouts holds every job")
	}
	return s.best.pattern, s.best.result, s.err
}

type found struct {
	pattern Pattern
	result  *Result
}

type search struct {
	c      Config
	jobs   iter.Seq[trace.Job]
	better func(a, b *Result) bool
	needs  map[string]bool
	best   found
	err    error
}

// try plays the jobs under a pattern; nil if it cannot hold them all.
func (s *search) try(p Pattern) *Result {
	b := s.c.GPUs[0]
	for name := range s.needs {
		if !slices.ContainsFunc(p[:min(len(p), len(s.c.GPUs))], func(l mig.Layout) bool { return holds(b, l, name) }) {
			return nil
		}
	}
	c := s.c
	c.Policy, c.Static = nil, p.Deal(len(c.GPUs))
	r, err := Run(c, s.jobs)
	if errors.Is(err, errNever) {
		return nil // a job needs more slices at once than the pattern has
	} else if err != nil {
		s.err = err
		return nil
	}
	if s.best.result == nil || s.better(r, s.best.result) {
		s.best = found{p, r}
	}
	return r
}

// holds reports whether a slice of the layout is large enough for a profile.
func holds(b *mig.Board, l mig.Layout, profile string) bool {
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

// enough reports whether an instance of one profile serves a job that needs another.
func enough(has, needs mig.Profile) bool {
	return needs.Size <= has.Size && needs.Compute <= has.Compute
}

// contents are the layout of a whole GPU, and one maximal layout for each different content of the others.
func contents(b *mig.Board) (whole mig.Layout, others []mig.Layout) {
	seen := map[string]bool{}
	for _, l := range b.Maximal() {
		name := Pattern{l}.Names(b)
		switch {
		case seen[name]:
		case l.Count() == 1 && b.Placements[first(l)].Size == b.Grid:
			whole = l
		default:
			others = append(others, l)
		}
		seen[name] = true
	}
	return whole, others
}

// Whole is the layout of one instance that takes the whole GPU; false if the board has no such profile.
func Whole(b *mig.Board) (mig.Layout, bool) {
	whole, _ := contents(b)
	return whole, whole != 0
}

func first(l mig.Layout) int {
	for i := range l.Indices() {
		return i
	}
	return -1
}
