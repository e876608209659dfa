package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// These constants limit the attempts to record a run. Over the first ten attempts, the pause before each attempt grows
// from firstPause to longestPause. The other 720 attempts are 30 to 60 minutes apart. All attempts together take about
// 22 days, and never more than 30 days.
const (
	firstPause   = 5 * time.Second
	longestPause = time.Hour
	maxTries     = 10 + 30*24
)

// awaitRequeued is the number of attempts, about two minutes, during which the summary of a requeued run waits for the
// record of the job's next run. slurmctld sends that record within 5 s after the requeue (22.05.8), but not if it lost
// its state or the job.
const awaitRequeued = 5

// backoff returns the pause after the given number of attempts. Part of it is random, so that two agents that have
// overwritten each other's summaries of a job do not collide again.
func backoff(tries int) time.Duration {
	d := firstPause << min(tries, 10)
	d = min(d, longestPause)
	return d - rand.N(d/2)
}

// recorder reads the state and exit status of finished runs from slurmdbd and writes their summaries to slurmdbd, one
// call at a time. A summary counts as recorded only after a later call has read it back, because the agents of two
// nodes can write to the same job's field at the same time, and slurmdbd stores only the last value.
func (m *Monitor) recorder(ctx context.Context) {
	next := time.NewTimer(firstPause) // there may be runs in the outbox that ended before this agent started
	defer next.Stop()
	at := time.Now().Add(firstPause) // the time at which next fires
	set := func(wait time.Duration) {
		at = time.Now().Add(wait)
		next.Reset(wait)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.toRecord:
			// slurmctld reports the end of a job to slurmdbd after the last node's epilog. A later end must not
			// postpone the attempts: on a node where a job ends every second, there would be none.
			if wait := backoff(0); time.Until(at) > wait {
				set(wait)
			}
		case <-next.C:
			set(m.recordDue(ctx))
		}
	}
}

// recordDue makes the attempts that are due and returns the time until the next call is due.
func (m *Monitor) recordDue(ctx context.Context) time.Duration {
	defer m.countWaiting()
	m.recordAgain(ctx)
	for ctx.Err() == nil {
		due, err := m.repo.Due(m.Now(), 1)
		m.reportRepository(err)
		if err != nil || len(due) == 0 {
			break
		}
		if err := m.record(ctx, due[0]); err != nil {
			// No errors are logged for the first two attempts, because the end of a run may reach slurmdbd late.
			if due[0].Tries >= 2 && !m.dbdFailed.Swap(true) {
				m.Log.WithError(err).
					WithField("job", due[0].Run.Job).
					Warn("couldn't write the usage of a job to its accounting record; trying again with pauses of " +
						"up to an hour; further failures are not logged until an attempt succeeds")
			}
			return firstPause
		}
		m.dbdFailed.Store(false)
	}
	next, any, err := m.repo.Next()
	if look := m.restarts.look; m.SlurmctldTimes != nil && !look.IsZero() && (err != nil || !any || look.Before(next)) {
		next, any, err = look, true, nil
	}
	if err != nil || !any {
		return longestPause
	}
	return min(max(next.Sub(m.Now()), time.Second), longestPause)
}

// record makes one attempt to record a run. If the summary is in slurmdbd, it removes the run from the outbox.
// Otherwise, it writes the summary and postpones the run, so that a later attempt reads it back. It returns errors from
// slurmdbd and the repository.
func (m *Monitor) record(ctx context.Context, p Pending) error {
	if p.Tries >= maxTries {
		m.Log.WithField("job", p.Run.Job).
			Warn("gave up writing the usage of a job to its accounting record after 730 attempts; " +
				"only this node's repository contains the usage")
		return m.repo.Recorded(p.Run)
	}
	postpone := func(written bool, why error) error {
		if err := m.repo.Postpone(p.Run, m.Now().Add(backoff(p.Tries)), written); err != nil {
			m.reportRepository(err)
			return err
		}
		return why
	}
	field := cmp.Or(m.Field, slurm.AdminComment) // if m.Field is empty, record only reads AdminComment
	records, err := m.accounting.RecordsOf(ctx, field, p.Run.Job)
	if err != nil || len(records) == 0 {
		return postpone(false, err)
	}
	own, newest := recordOf(records, p.Run), records[len(records)-1]
	if own.End.IsZero() {
		return postpone(false, nil)
	}
	if p.Run.State == "" {
		p.Run.State, p.Run.Exit = own.State, own.Exit
		if _, err := m.repo.Add(p.Run); err != nil {
			return postpone(false, fmt.Errorf("couldn't store the end of the run: %w", err))
		}
	}
	switch {
	case m.Field != "" && newest.End.IsZero():
		// The job was requeued. If slurmdbd received the record of its newest run just before the summary, the summary
		// is in the wrong record, and the end of the newest run will overwrite it.
		return postpone(false, nil)
	case m.Field != "" && newest.State == "REQUEUED" && p.Tries < awaitRequeued:
		// The job has another run. Its record may not exist yet, and plain sacct will show only that record.
		return postpone(false, nil)
	case m.Field == "", hasSummary(newest.Text, p.Run.Summary()):
		m.restarts.afterRecorded(m.Now())
		return m.repo.Recorded(p.Run)
	}
	err = m.accounting.SetAccounting(ctx, newest, field, predict.WithSummary(newest.Text, p.Run))
	if errors.Is(err, slurm.ErrSpoils) {
		m.spoils.Do(func() {
			m.Log.WithError(err).
				WithField("job", p.Run.Job).
				Warn("the usage of jobs is not written into accounting records that contain another tool's text; " +
					"set accounting_field to a field that no other tool uses")
		})
		return m.repo.Recorded(p.Run)
	}
	return postpone(err == nil, err)
}

// recordOf returns a run's record. It chooses the record whose start time is closest to the run's start time, because
// the clocks of the node and of slurmctld may differ, and an earlier job may have had the same id.
func recordOf(records []slurm.Record, run predict.Run) slurm.Record {
	away := func(r slurm.Record) time.Duration { return r.Start.Sub(time.Unix(run.Start, 0)).Abs() }
	return slices.MinFunc(records, func(x, y slurm.Record) int { return cmp.Compare(away(x), away(y)) })
}

// hasSummary reports whether a record's text contains this summary, ignoring case.
func hasSummary(record, summary string) bool {
	return slices.ContainsFunc(
		strings.Fields(record),
		func(word string) bool { return strings.EqualFold(word, summary) },
	)
}
