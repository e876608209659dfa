package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"caelum/internal/predict"
)

// memory is a repository in memory.
type memory struct {
	mu   sync.Mutex
	open map[[2]int]Observation
	runs []predict.Run
	out  []*errand
	full error // the error of every write
	shut error // the error of Observations
}

type errand struct {
	Pending
	due time.Time
}

func newMemory() *memory { return &memory{open: map[[2]int]Observation{}} }

func same(a, b predict.Run) bool {
	return a.Job == b.Job && a.Restart == b.Restart && a.Node == b.Node && a.Start == b.Start
}

func (m *memory) Observe(o Observation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full == nil {
		m.open[[2]int{int(o.Job), o.Restart}] = o
	}
	return m.full
}

func (m *memory) Observations() ([]Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.open)), m.shut
}

func (m *memory) Dismiss(job uint32, restart int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, [2]int{int(job), restart})
	return m.full
}

func (m *memory) Ended(run predict.Run, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full != nil {
		return m.full
	}
	delete(m.open, [2]int{int(run.Job), run.Restart})
	m.put(run)
	m.out = append(m.out, &errand{Pending{Run: run, Since: at}, at})
	return nil
}

func (m *memory) put(run predict.Run) {
	if k := slices.IndexFunc(m.runs, func(r predict.Run) bool { return same(r, run) }); k >= 0 {
		m.runs[k] = run
	} else {
		m.runs = append(m.runs, run)
	}
}

func (m *memory) Add(runs ...predict.Run) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range runs {
		m.put(r)
	}
	return 0, m.full
}

func (m *memory) Due(now time.Time, n int) (due []Pending, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.out {
		if !e.due.After(now) && len(due) < n {
			p := e.Pending
			p.Run = m.runs[slices.IndexFunc(m.runs, func(r predict.Run) bool { return same(r, p.Run) })]
			due = append(due, p)
		}
	}
	return due, m.full
}

func (m *memory) Next() (next time.Time, any bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.out {
		if !any || e.due.Before(next) {
			next, any = e.due, true
		}
	}
	return next, any, m.full
}

func (m *memory) Waiting() (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.out), m.full
}

func (m *memory) Postpone(run predict.Run, until time.Time, written bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.out {
		if same(e.Run, run) {
			e.Tries++
			e.due, e.Written = until, written
		}
	}
	return m.full
}

func (m *memory) Recorded(run predict.Run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out = slices.DeleteFunc(m.out, func(e *errand) bool { return same(e.Run, run) })
	return m.full
}

func (m *memory) kept() []predict.Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.runs)
}

func (m *memory) fill(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = err
}
