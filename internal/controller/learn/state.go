package learn

import (
	"fmt"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/trust"
)

// State describes how far Caelum has learned from earlier runs.
type State struct {
	Runs int // the number of runs in the repository
	// First is the start of the first run, and Newest is the end of the newest one. They are zero without runs.
	First, Newest time.Time
	// Synced is the time up to which slurmdbd's records were read. If it is zero, the repository contains only runs
	// that were imported or recorded by this node's agent.
	Synced time.Time
}

// stuckAfter is the age of the last sync after which learning has stopped. The watcher syncs every minute, but a query
// to slurmdbd can take minutes.
const stuckAfter = time.Hour

// StateOf returns the state of learning in a repository.
func StateOf(r *repo.Repo) (s State, err error) {
	if s.Runs, s.First, s.Newest, err = r.Extent(); err != nil {
		return s, err
	}
	s.Synced, err = noteTime(r, noteSynced)
	return s, err
}

// ReadState returns the state of learning in the repository at path, which must exist. Opening a repository writes to
// its directory, so ReadState returns an error if other users can change the directory.
func ReadState(path string) (State, error) {
	if err := trust.Directory(path); err != nil {
		return State{}, err
	}
	r, err := repo.OpenAsItIs(path)
	if err != nil {
		return State{}, err
	}
	defer r.Close()
	return StateOf(r)
}

// Stuck reports whether no sync has read slurmdbd lately.
func (s State) Stuck(now time.Time) bool { return now.Sub(s.Synced) > stuckAfter }

// String describes the state at a time, for example "learning is on, with 12 runs since 2026-11-01".
func (s State) String(now time.Time) string {
	text := "learning is on"
	if s.Stuck(now) {
		text = fmt.Sprintf("learning is off or has stopped: slurmdbd was last read on %s",
			s.Synced.Format(time.DateTime))
	}
	if s.Runs == 0 {
		return text + ", but no run has been recorded"
	}
	return fmt.Sprintf("%s, with %d runs since %s", text, s.Runs, s.First.Format(time.DateOnly))
}
