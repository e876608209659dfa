package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"caelum/internal/predict"
	"caelum/internal/slurm"
)

// Pauses between two tries for one run, and how many there are: ten that grow, then one an hour for 30 days.
const (
	firstPause   = 5 * time.Second
	longestPause = time.Hour
	mostTries    = 10 + 30*24
)

// backoff is how long to wait after so many tries. Two agents that have overwritten one another's summaries of a job do
// not meet again: it is drawn.
func backoff(tries int) time.Duration {
	d := firstPause << min(tries, 10)
	d = min(d, longestPause)
	return d - rand.N(d/2)
}

// recorder asks slurmdbd how runs ended and writes their summaries into it, one call at a time. A summary counts as
// written when a later look finds it: two nodes' agents may write the same job's field at the same time, and slurmdbd
// keeps the last.
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
		a.reportRepository(err)
		if err != nil || len(due) == 0 {
			break
		}
		if err := a.record(ctx, due[0]); err != nil {
			// A run that has just ended may not be in slurmdbd yet.
			if due[0].Tries >= 2 && !a.dbdFailed.Swap(true) {
				a.log.WithError(err).
					WithField("job", due[0].Run.Job).
					Warn("couldn't write what a job used into its accounting record; trying again, at last once an hour, and saying nothing more until it works")
			}
			return firstPause
		}
		a.dbdFailed.Store(false)
	}
	next, any, err := a.repo.Next()
	if err != nil || !any {
		return longestPause
	}
	return min(max(next.Sub(a.now()), time.Second), longestPause)
}

// record does one step for one run: the summary is there, or it is written and looked for later. The error is
// slurmdbd's or the repository's.
func (a *Agent) record(ctx context.Context, p Pending) error {
	if p.Tries >= mostTries {
		a.log.WithField("job", p.Run.Job).
			Warn("gave up writing what a job used into its accounting record, after 30 days; this node's repository has it")
		return a.repo.Recorded(p.Run)
	}
	again := func(written bool, why error) error {
		if err := a.repo.Postpone(p.Run, a.now().Add(backoff(p.Tries)), written); err != nil {
			a.reportRepository(err)
			return err
		}
		return why
	}
	field := slurm.AccountingField(a.cfg.AccountingField)
	if field == NoField {
		field = slurm.AdminComment // to be read alone
	}
	records, err := a.accounting.RecordsOf(ctx, field, p.Run.Job)
	if err != nil || len(records) == 0 {
		return again(false, err)
	}
	own, newest := recordOf(records, p.Run), records[len(records)-1]
	if own.End.IsZero() {
		return again(false, nil)
	}
	if p.Run.State == "" {
		p.Run.State, p.Run.Exit = own.State, own.Exit
		if _, err := a.repo.Add(p.Run); err != nil {
			return again(false, fmt.Errorf("couldn't note how it ended: %w", err))
		}
	}
	switch {
	case a.cfg.AccountingField == NoField, has(newest.Text, p.Run.Summary()):
		return a.repo.Recorded(p.Run)
	case newest.End.IsZero(): // it was requeued, and runs again
		return again(false, nil)
	}
	err = a.accounting.SetAccounting(ctx, newest, field, predict.WithSummary(newest.Text, p.Run))
	if errors.Is(err, slurm.ErrSpoils) {
		a.spoils.Do(func() {
			a.log.WithError(err).
				WithField("job", p.Run.Job).
				Warn("what this job used is not written into its accounting record, nor that of others like it; set accounting_field to a field that no other tool uses")
		})
		return a.repo.Recorded(p.Run)
	}
	return again(err == nil, err)
}

// recordOf is the record of a run, by when it began: the node's clock and slurmctld's may differ a little, and a job's
// id may have been given out before.
func recordOf(records []slurm.Record, run predict.Run) slurm.Record {
	away := func(r slurm.Record) time.Duration { return r.Start.Sub(time.Unix(run.Start, 0)).Abs() }
	return slices.MinFunc(records, func(x, y slurm.Record) int { return cmp.Compare(away(x), away(y)) })
}

// has reports whether a record has this summary, in whatever case.
func has(record, summary string) bool {
	return slices.ContainsFunc(
		strings.Fields(record),
		func(word string) bool { return strings.EqualFold(word, summary) },
	)
}
