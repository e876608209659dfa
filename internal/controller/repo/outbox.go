package repo

import (
	"database/sql"
	"errors"
	"time"

	"caelum/internal/core/predict"
)

// Observation is the open observation of a lease whose job is still running. Only the agent parses Text.
type Observation struct {
	Job     uint32
	Restart int
	Text    []byte
}

// Observe stores an open observation. It replaces any earlier observation with the same job and restart count.
func (r *Repo) Observe(o Observation) error {
	return r.exec("INSERT OR REPLACE INTO open (job, restart, observation) VALUES (?, ?, ?)", o.Job, o.Restart, o.Text)
}

// Observations returns the open observations, ordered by job.
func (r *Repo) Observations() ([]Observation, error) {
	return query(r, func(rows *sql.Rows) (o Observation, err error) {
		err = rows.Scan(&o.Job, &o.Restart, &o.Text)
		return
	}, "SELECT job, restart, observation FROM open ORDER BY job, restart")
}

// Dismiss removes an open observation without storing a run.
func (r *Repo) Dismiss(job uint32, restart int) error {
	return r.exec("DELETE FROM open WHERE job = ? AND restart = ?", job, restart)
}

// Ended stores a run that ended at the given time, removes its open observation, and adds the run to the outbox, where
// it is due immediately.
func (r *Repo) Ended(n predict.Run, at time.Time) error {
	return r.do(func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM open WHERE job = ? AND restart = ?", n.Job, n.Restart); err != nil {
			return err
		}
		a, err := newAdder(tx)
		if err != nil {
			return err
		}
		if err := a.add(n); err != nil {
			return err
		}
		// If the run has been forgotten, it was not stored, and this statement does not add it to the outbox.
		_, err = tx.Exec(`INSERT OR IGNORE INTO outbox (job, restart, node, start, since, due, tries, written)
			SELECT job, restart, node, start, ?5, ?5, 0, 0 FROM run
			WHERE job = ?1 AND restart = ?2 AND node = ?3 AND start = ?4`,
			n.Job, n.Restart, n.Node, n.Start, at.Unix())
		return err
	})
}

// Pending is a run whose summary may be missing from slurmdbd.
type Pending struct {
	Run     predict.Run
	Since   time.Time // the end of the run
	Tries   int       // the number of calls to Postpone
	Written bool      // true if the summary was written and must be verified
}

// Due returns up to n due runs in the outbox, in the order of their due times. A run whose due time is more than a day
// in the future is also due, because in this case, the clock must have been set back.
func (r *Repo) Due(now time.Time, n int) ([]Pending, error) {
	return query(r, func(rows *sql.Rows) (p Pending, err error) {
		var since int64
		err = rows.Scan(append(fields(&p.Run), &since, &p.Tries, &p.Written)...)
		p.Since = time.Unix(since, 0)
		return
	}, "SELECT "+columns+`, since, tries, written FROM outbox JOIN run USING (job, restart, node, start)
		WHERE due <= ?1 OR due > ?1 + 86400 ORDER BY due, job, restart, start LIMIT ?2`, now.Unix(), n)
}

// Next returns the earliest due time of the runs in the outbox, or false if the outbox is empty.
func (r *Repo) Next() (time.Time, bool, error) {
	var due sql.NullInt64
	err := r.read(func(q *sql.DB) error { return q.QueryRow("SELECT min(due) FROM outbox").Scan(&due) })
	return time.Unix(due.Int64, 0), due.Valid, err
}

// Waiting returns the number of runs in the outbox.
func (r *Repo) Waiting() (n int, err error) {
	err = r.read(func(q *sql.DB) error { return q.QueryRow("SELECT count(*) FROM outbox").Scan(&n) })
	return n, err
}

// Postpone records an attempt and sets the run's next due time to until. written is true if the summary has been
// written and must be verified at that time.
func (r *Repo) Postpone(n predict.Run, until time.Time, written bool) error {
	return r.exec(
		"UPDATE outbox SET tries = tries + 1, due = ?, written = ? "+
			"WHERE job = ? AND restart = ? AND node = ? AND start = ?",
		until.Unix(),
		written,
		n.Job,
		n.Restart,
		n.Node,
		n.Start,
	)
}

// Recorded removes a run from the outbox. The agent calls it once slurmdbd has stored the summary or can no longer
// store it.
func (r *Repo) Recorded(n predict.Run) error {
	return r.exec(
		"DELETE FROM outbox WHERE job = ? AND restart = ? AND node = ? AND start = ?",
		n.Job,
		n.Restart,
		n.Node,
		n.Start,
	)
}

// longestRun limits the search of [Repo.Again] to runs that started at most this long before the given interval.
const longestRun = 60 * 24 * time.Hour

// Again puts a node's runs that ended in the given interval back into the outbox, because their summaries may have been
// removed from slurmdbd. Their due time is set to due. Runs that are already in the outbox are left unchanged.
func (r *Repo) Again(node string, from, to, due time.Time) error {
	return r.exec(
		`INSERT OR IGNORE INTO outbox (job, restart, node, start, since, due, tries, written)
		SELECT job, restart, node, start, CAST(start + seconds AS INTEGER), ?5, 0, 0 FROM run
		WHERE node = ?1 AND start BETWEEN ?2 AND ?4 AND start + seconds BETWEEN ?3 AND ?4`,
		node,
		from.Add(-longestRun).Unix(),
		from.Unix(),
		to.Unix(),
		due.Unix(),
	)
}

// Note returns the note with this name, for example the progress of the sync, or an empty string if there is no such
// note.
func (r *Repo) Note(name string) (value string, err error) {
	err = r.read(func(q *sql.DB) error {
		err := q.QueryRow("SELECT value FROM meta WHERE name = ?", name).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, err
}

// SetNote stores a note under this name.
func (r *Repo) SetNote(name, value string) error {
	return r.exec("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", name, value)
}
