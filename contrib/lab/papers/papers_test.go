package papers

import (
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

func gpus(t testing.TB, model string, n int) []*mig.Model {
	t.Helper()
	b, err := mig.ModelByName(model)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Repeat([]*mig.Model{b.Select(mig.Plain)}, n)
}

func policy(t testing.TB, name string) place.Policy {
	t.Helper()
	p, err := place.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// policies runs a test with each policy.
func policies(t *testing.T, test func(*testing.T, place.Policy)) {
	for _, name := range place.Names() {
		t.Run(name, func(t *testing.T) { test(t, policy(t, name)) })
	}
}

// spans records the slices and the waits of jobs, in the order of their starts.
type spans struct {
	all    []sim.Span
	waited []float64
	jobs   []string // the jobs that waited
}

func (*spans) Passed(_, _ float64, _, _ int, _ float64) {}
func (s *spans) Ran(span sim.Span)                      { s.all = append(s.all, span) }

func (s *spans) Waited(job string, wait float64) {
	s.jobs, s.waited = append(s.jobs, job), append(s.waited, wait)
}

func waits(c sim.Config, jobs []trace.Job) ([]float64, error) {
	var seen spans
	c.Observer = &seen
	_, err := sim.Run(c, slices.Values(jobs))
	return seen.waited, err
}
