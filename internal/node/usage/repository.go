package usage

import (
	"context"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// Repository stores jobs' runs, observations of runs that have not ended, and the outbox, which holds the runs whose
// summaries are not in slurmdbd yet. Its methods are safe for concurrent use.
type Repository interface {
	// Observe stores the observation of a run that has not ended. It replaces any earlier observation with the same job
	// and restart count.
	Observe(o Observation) error
	// Observations returns all stored observations.
	Observations() ([]Observation, error)
	// Dismiss removes the observation of a run.
	Dismiss(job uint32, restart int) error
	// Ended stores a run that ended at the given time, removes its observation, and adds it to the outbox, where it is
	// due immediately.
	Ended(run predict.Run, at time.Time) error
	// RunsOfKey returns a user's newest runs with the given job key, oldest first.
	RunsOfKey(uid uint32, key string) ([]predict.Run, error)
	// Add stores runs, completes those that are already stored, and returns the number of new runs.
	Add(runs ...predict.Run) (added int, err error)
	// Due returns up to n due runs in the outbox, beginning with the run that was due first.
	Due(now time.Time, n int) ([]Pending, error)
	// Next returns the time at which the next run in the outbox is due, or false if the outbox is empty.
	Next() (time.Time, bool, error)
	// Waiting returns the number of runs in the outbox.
	Waiting() (int, error)
	// Postpone records an attempt for a run in the outbox and sets the time of the next one. written is true if the
	// summary was written, in which case the next attempt must read it from slurmdbd.
	Postpone(run predict.Run, until time.Time, written bool) error
	// Again puts the runs that ended on a node between two times back into the outbox. They become due at the given
	// time.
	Again(node string, from, to, due time.Time) error
	// Recorded removes a run from the outbox.
	Recorded(run predict.Run) error
	// Prune removes runs that are too old or too many, and returns their number.
	Prune(now time.Time) (n int, err error)
}

// Observation is the stored observation of a run that has not ended. Only the agent parses it.
type Observation = repo.Observation

// Pending is a run in the outbox. Its summary may not be in slurmdbd yet.
type Pending = repo.Pending

// Accounting is the set of slurmdbd calls that the recorder uses.
type Accounting interface {
	// RecordsOf returns a job's records in slurmdbd, one for each run, oldest first. Each includes the text of the
	// given field. RecordsOf returns an error if there are no records.
	RecordsOf(ctx context.Context, field slurm.AccountingField, job uint32) ([]slurm.Record, error)
	// SetAccounting replaces the field in a job's newest record. The run of this record must have ended. sacctmgr 22.05
	// stores the text in lower case. If it would alter text in the field that belongs to another tool, SetAccounting
	// writes nothing and returns ErrSpoils.
	SetAccounting(ctx context.Context, r slurm.Record, field slurm.AccountingField, text string) error
}
