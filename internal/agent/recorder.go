package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"caelum/internal/predict"
	"caelum/internal/slurm"
)

// Accounting is what the recorder needs of slurmdbd.
type Accounting interface {
	// Record reads the accounting record of a job's run, with the field that the summary goes into. An error while slurmdbd has none.
	Record(ctx context.Context, job uint32, restart int, field string) (Record, error)
	// SetAccounting replaces the field of a job's record.
	SetAccounting(ctx context.Context, job uint32, field, text string) error
}

// Record is what slurmdbd has of a run.
type Record struct {
	// State is sacct's: COMPLETED, CANCELLED by 1001; RUNNING while slurmdbd has not heard of the end. Exit is the batch script's exit status.
	State string
	Exit  int
	Text  string
}

// NoField as accounting_field: nothing is written into slurmdbd.
const NoField = "none"

// Pauses between two tries for one run, and how many there are: ten that grow, then one an hour for 30 days.
const (
	firstPause   = 5 * time.Second
	longestPause = time.Hour
	mostTries    = 10 + 30*24
)

// backoff is how long to wait after so many tries. Two agents that have overwritten one another's summaries of a job do not meet again: it is drawn.
func backoff(tries int) time.Duration {
	d := firstPause << min(tries, 10)
	d = min(d, longestPause)
	return d - rand.N(d/2)
}

// recorder asks slurmdbd how runs ended and writes their summaries into it, one call at a time. A summary counts as written when a later look finds it: two nodes' agents
// may write the same job's field at the same time, and slurmdbd keeps the last.
func (a *Agent) recorder(ctx context.Context) {
	wait := firstPause // what earlier agents have left
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.toRecord:
			wait = backoff(0) // slurmctld tells slurmdbd of the end after the last node's epilog
		case <-time.After(wait):
			wait = a.recordDue(ctx)
		}
	}
}

// recordDue does what is due and answers when to come again.
func (a *Agent) recordDue(ctx context.Context) time.Duration {
	defer a.countWaiting()
	for ctx.Err() == nil {
		due, err := a.repo.Due(a.now(), 1)
		a.said(err)
		if err != nil || len(due) == 0 {
			break
		}
		if err := a.record(ctx, due[0]); err != nil {
			a.log.WithError(err).WithField("job", due[0].Run.Job).Debug("couldn't record what a job used; trying again later")
			return firstPause
		}
	}
	next, any, err := a.repo.Next()
	if err != nil || !any {
		return longestPause
	}
	return min(max(next.Sub(a.now()), time.Second), longestPause)
}

// record does one step for one run: the summary is there, or it is written and looked for later. The error is slurmdbd's or the repository's.
func (a *Agent) record(ctx context.Context, p Pending) error {
	if p.Tries >= mostTries {
		a.log.WithField("job", p.Run.Job).Warn("gave up writing what a job used into its accounting record, after 30 days; this node's repository has it")
		return a.repo.Recorded(p.Run)
	}
	again := func(written bool, why error) error {
		if err := a.repo.Postpone(p.Run, a.now().Add(backoff(p.Tries)), written); err != nil {
			a.said(err)
			return err
		}
		return why
	}
	rec, err := a.accounting.Record(ctx, p.Run.Job, p.Run.Restart, a.cfg.AccountingField)
	if err != nil {
		return again(false, err)
	}
	state, _, _ := strings.Cut(rec.State, " ")
	if !over(state) {
		return again(false, nil)
	}
	if p.Run.State == "" {
		p.Run.State, p.Run.Exit = state, rec.Exit
		if _, err := a.repo.Add(p.Run); err != nil {
			return again(false, fmt.Errorf("couldn't note how it ended: %w", err))
		}
	}
	if a.cfg.AccountingField == NoField || slices.Contains(strings.Fields(rec.Text), p.Run.Summary()) {
		return a.repo.Recorded(p.Run)
	}
	if err := a.accounting.SetAccounting(ctx, p.Run.Job, a.cfg.AccountingField, predict.WithSummary(rec.Text, p.Run)); err != nil {
		return again(false, err)
	}
	return again(true, nil)
}

// over reports whether a run with this state in slurmdbd has ended.
func over(state string) bool {
	return state != "" && state != "PENDING" && !slurm.Job{State: state}.Present()
}
