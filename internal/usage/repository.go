package usage

import (
	"context"
	"time"

	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

// Repository stores the runs of jobs, the observations of runs that have not ended, and the outbox, which lists the
// runs whose summary is not in slurmdbd yet. Several goroutines may call its methods.
type Repository interface {
	// Observe stores the observation of a run that has not ended. It replaces an earlier observation of the same job
	// and restart.
	Observe(o Observation) error
	// Observations returns all stored observations.
	Observations() ([]Observation, error)
	// Dismiss removes the observation of a job and restart.
	Dismiss(job uint32, restart int) error
	// Ended stores a run that ended at the time at, removes its observation, and puts the run into the outbox, where it
	// is due immediately.
	Ended(run predict.Run, at time.Time) error
	// Add completes a stored run.
	Add(runs ...predict.Run) (added int, err error)
	// Due returns at most n runs of the outbox that are due, starting with the run that has waited longest.
	Due(now time.Time, n int) ([]Pending, error)
	// Next returns the time at which the next run of the outbox is due, or false if the outbox is empty.
	Next() (time.Time, bool, error)
	// Waiting returns the number of runs in the outbox.
	Waiting() (int, error)
	// Postpone counts an attempt for a run of the outbox and sets the time of the next one. written is set if the
	// summary was written, so that the next attempt must read it back.
	Postpone(run predict.Run, until time.Time, written bool) error
	// Recorded removes a run from the outbox.
	Recorded(run predict.Run) error
}

// Observation is the stored observation of a run that has not ended. Only the agent interprets its text.
type Observation = repo.Observation

// Pending is a run in the outbox. Its summary may not be in slurmdbd yet.
type Pending = repo.Pending

// Accounting is the part of slurmdbd that the recorder uses.
type Accounting interface {
	// RecordsOf returns the records of a job in slurmdbd, one for each of its runs, oldest first, with the text of one
	// field. It returns an error if there are none.
	RecordsOf(ctx context.Context, field slurm.AccountingField, job uint32) ([]slurm.Record, error)
	// SetAccounting replaces the field of a job's newest record, whose run must have ended. sacctmgr 22.05 stores the
	// text in lower case. If the write would change another tool's text in the field, SetAccounting writes nothing
	// and returns ErrSpoils.
	SetAccounting(ctx context.Context, r slurm.Record, field slurm.AccountingField, text string) error
}
