package agent

import (
	"context"
	"time"

	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

// What the agent needs of the profile repository and of slurmdbd, and what passes to and fro.

// Repository keeps the runs of jobs, and what must not be forgotten on the way there. Its methods may be called from
// several goroutines.
type Repository interface {
	// Observe writes an open observation, in the place of an earlier one of the same job and restart; Dismiss drops it.
	Observe(o Observation) error
	Observations() ([]Observation, error)
	Dismiss(job uint32, restart int) error
	// Ended keeps a run that ended at this time, in the place of its open observation, and puts its summary into the
	// outbox, due at once.
	Ended(run predict.Run, at time.Time) error
	// Add completes a run that is there.
	Add(runs ...predict.Run) (added int, err error)
	// Due lists the runs in the outbox whose time has come, those that have waited longest first, n at most; Next is
	// when the next one is due, false without any; Waiting is how many there are.
	Due(now time.Time, n int) ([]Pending, error)
	Next() (time.Time, bool, error)
	Waiting() (int, error)
	// Postpone counts a try and puts a run off; written: its summary is to be read back then. Recorded takes it out.
	Postpone(run predict.Run, until time.Time, written bool) error
	Recorded(run predict.Run) error
}

// Observation is what is known of a run that lasts; its text is the agent's own.
type Observation = repo.Observation

// Pending is a run whose summary slurmdbd does not have for certain.
type Pending = repo.Pending

// Accounting is what the recorder needs of slurmdbd.
type Accounting interface {
	// RecordsOf lists what slurmdbd has of a job, one record for each of its runs, oldest first, with a field of
	// theirs. An error when it has none.
	RecordsOf(ctx context.Context, field slurm.AccountingField, job uint32) ([]slurm.Record, error)
	// SetAccounting replaces the field of a job's newest record, which must be over. It comes out in lower case
	// (sacctmgr 22.05.8): ErrSpoils, and nothing is written, where that would change what another tool keeps there.
	SetAccounting(ctx context.Context, r slurm.Record, field slurm.AccountingField, text string) error
}
