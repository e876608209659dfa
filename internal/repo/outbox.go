package repo

import (
	"database/sql"
	"errors"
	"time"

	"caelum/internal/predict"
)

// Observation is an open one: of a lease whose job still runs. What is in it is its writer's business.
type Observation struct {
	Job     uint32
	Restart int
	Text    []byte
}

// Observe writes an open observation, in the place of an earlier one of the same job and restart.
func (r *Repo) Observe(o Observation) error {
	return r.exec("INSERT OR REPLACE INTO open (job, restart, observation) VALUES (?, ?, ?)", o.Job, o.Restart, o.Text)
}

// Observations lists the open ones, by job.
func (r *Repo) Observations() ([]Observation, error) {
	return query(r, func(rows *sql.Rows) (o Observation, err error) {
		err = rows.Scan(&o.Job, &o.Restart, &o.Text)
		return
	}, "SELECT job, restart, observation FROM open ORDER BY job, restart")
}

// Dismiss drops an open observation of which no run is to be kept.
func (r *Repo) Dismiss(job uint32, restart int) error {
	return r.exec("DELETE FROM open WHERE job = ? AND restart = ?", job, restart)
}

// Ended keeps a run that has ended at this time, in the place of its open observation, and puts its summary into the
// outbox, due at once.
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
		// A run that is to be forgotten is not there, and so has no summary to write.
		_, err = tx.Exec(`INSERT OR IGNORE INTO outbox (job, restart, node, start, since, due, tries, written)
			SELECT job, restart, node, start, ?5, ?5, 0, 0 FROM run WHERE job = ?1 AND restart = ?2 AND node = ?3 AND start = ?4`,
			n.Job, n.Restart, n.Node, n.Start, at.Unix())
		return err
	})
}

// Pending is a run whose summary slurmdbd does not have for certain.
type Pending struct {
	Run     predict.Run
	Since   time.Time // when the run had ended
	Tries   int       // how often Postpone was called
	Written bool      // it is to be read back
}

// Due lists the runs in the outbox whose time has come, those that have waited longest first, n at most. A time more
// than a day ahead is one of a clock that has been set back since, and has come too.
func (r *Repo) Due(now time.Time, n int) ([]Pending, error) {
	return query(r, func(rows *sql.Rows) (p Pending, err error) {
		var since int64
		err = rows.Scan(append(fields(&p.Run), &since, &p.Tries, &p.Written)...)
		p.Since = time.Unix(since, 0)
		return
	}, "SELECT "+columns+`, since, tries, written FROM outbox JOIN run USING (job, restart, node, start)
		WHERE due <= ?1 OR due > ?1 + 86400 ORDER BY due, job, restart, start LIMIT ?2`, now.Unix(), n)
}

// Next is when the next run in the outbox is due; false: it is empty.
func (r *Repo) Next() (time.Time, bool, error) {
	var due sql.NullInt64
	err := r.read(func(q *sql.DB) error { return q.QueryRow("SELECT min(due) FROM outbox").Scan(&due) })
	return time.Unix(due.Int64, 0), due.Valid, err
}

// Waiting is how many runs are in the outbox.
func (r *Repo) Waiting() (n int, err error) {
	err = r.read(func(q *sql.DB) error { return q.QueryRow("SELECT count(*) FROM outbox").Scan(&n) })
	return n, err
}

// Postpone counts a try and puts a run off until this time. Written says whether its summary has been written, and is
// to be read back then.
func (r *Repo) Postpone(n predict.Run, until time.Time, written bool) error {
	return r.exec(
		"UPDATE outbox SET tries = tries + 1, due = ?, written = ? WHERE job = ? AND restart = ? AND node = ? AND start = ?",
		until.Unix(),
		written,
		n.Job,
		n.Restart,
		n.Node,
		n.Start,
	)
}

// Recorded takes a run out of the outbox: slurmdbd has its summary, or never will.
func (r *Repo) Recorded(n predict.Run) error {
	return r.exec(
		"DELETE FROM outbox WHERE job = ? AND restart = ? AND node = ? AND start = ?",
		n.Job,
		n.Restart,
		n.Node,
		n.Start,
	)
}

// Note reads a note such as how far a sync has come; empty if there is none.
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

// SetNote writes a note.
func (r *Repo) SetNote(name, value string) error {
	return r.exec("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", name, value)
}
