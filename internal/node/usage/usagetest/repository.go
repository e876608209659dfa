package usagetest

import (
	"maps"
	"slices"
	"sync"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// Repository is a repository in memory.
type Repository struct {
	mu         sync.Mutex
	Open       map[[2]int]repo.Observation
	runs       []predict.Run
	out        []*errand
	full       error // the error returned by every write
	Unreadable error // the error returned by Observations
	Prunes     int   // the number of calls to Prune
}

type errand struct {
	repo.Pending
	due time.Time
}

// NewRepository returns an empty repository.
func NewRepository() *Repository { return &Repository{Open: map[[2]int]repo.Observation{}} }

func same(a, b predict.Run) bool {
	return a.Job == b.Job && a.Restart == b.Restart && a.Node == b.Node && a.Start == b.Start
}

// Observe stores an observation.
func (m *Repository) Observe(o repo.Observation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full == nil {
		m.Open[[2]int{int(o.Job), o.Restart}] = o
	}
	return m.full
}

// RunsOfKey returns a user's runs with the given job key.
func (m *Repository) RunsOfKey(uid uint32, key string) (runs []predict.Run, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		if r.UID == uid && r.Key == key {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// Observations returns the stored observations.
func (m *Repository) Observations() ([]repo.Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.Open)), m.Unreadable
}

// Dismiss removes an observation.
func (m *Repository) Dismiss(job uint32, restart int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.Open, [2]int{int(job), restart})
	return m.full
}

// Ended stores a finished run and adds it to the outbox.
func (m *Repository) Ended(run predict.Run, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full != nil {
		return m.full
	}
	delete(m.Open, [2]int{int(run.Job), run.Restart})
	m.put(run)
	m.out = append(m.out, &errand{repo.Pending{Run: run, Since: at}, at})
	return nil
}

func (m *Repository) put(run predict.Run) {
	if k := slices.IndexFunc(m.runs, func(r predict.Run) bool { return same(r, run) }); k >= 0 {
		m.runs[k] = run
	} else {
		m.runs = append(m.runs, run)
	}
}

// Add completes runs that are already stored.
func (m *Repository) Add(runs ...predict.Run) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range runs {
		m.put(r)
	}
	return 0, m.full
}

// Due returns the due runs in the outbox.
func (m *Repository) Due(now time.Time, n int) (due []repo.Pending, err error) {
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

// Next returns the time at which the next run in the outbox is due.
func (m *Repository) Next() (next time.Time, any bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.out {
		if !any || e.due.Before(next) {
			next, any = e.due, true
		}
	}
	return next, any, m.full
}

// Waiting returns the number of runs in the outbox.
func (m *Repository) Waiting() (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.out), m.full
}

// Postpone sets the time of the next attempt.
func (m *Repository) Postpone(run predict.Run, until time.Time, written bool) error {
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

// Recorded removes a run from the outbox.
func (m *Repository) Recorded(run predict.Run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out = slices.DeleteFunc(m.out, func(e *errand) bool { return same(e.Run, run) })
	return m.full
}

// Prune counts the calls.
func (m *Repository) Prune(time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Prunes++
	return 0, m.full
}

// Again puts the runs that ended on a node between two times back into the outbox.
func (m *Repository) Again(node string, from, to, due time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range m.runs {
		end := time.Unix(run.Start, 0).Add(time.Duration(run.Seconds * float64(time.Second)))
		waits := slices.ContainsFunc(m.out, func(e *errand) bool { return same(e.Run, run) })
		if run.Node == node && !waits && !end.Before(from) && !end.After(to) {
			m.out = append(m.out, &errand{repo.Pending{Run: run, Since: end}, due})
		}
	}
	return m.full
}

// Kept returns the runs in the repository.
func (m *Repository) Kept() []predict.Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.runs)
}

// Fill sets the error returned by every write.
func (m *Repository) Fill(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = err
}
