package repo

import (
	"database/sql"
	"math"
	"slices"
	"time"

	"caelum/internal/core/predict"
	"caelum/internal/sqlite"
)

// Script is one of a user's keys, with a summary of its runs. Its Args are those of the newest run.
type Script struct {
	JobKeys
	User, Account string // the values of the newest run, like Name
	Runs          int
	Last          int64   // start of the newest run, in Unix seconds
	PeakMiB       float64 // the highest peak of these runs
	Complete      bool    // true if a run shows how much memory is sufficient (predict.Predict)
}

// Scripts lists the keys that have runs, beginning with the key of the run that started most recently. If several
// users have the same key, there is an entry for each of them.
func (r *Repo) Scripts() ([]Script, error) { return r.scripts("key <> ''") }

// ScriptsOf is like Scripts, but lists one user's keys.
func (r *Repo) ScriptsOf(uid uint32) ([]Script, error) {
	return r.scripts("key <> '' AND uid = ?", uid)
}

func (r *Repo) scripts(where string, args ...any) ([]Script, error) {
	// Because of max(start) in the query, SQLite takes the values of the other columns from the newest run
	// (sqlite.org/lang_select.html#bareagg).
	return query(r, func(rows *sql.Rows) (w Script, err error) {
		err = rows.Scan(&w.Key, &w.Fingerprint, &w.UID, (*numbers)(&w.Args), &w.User, &w.Account, &w.Name, &w.Runs,
			&w.Last, &w.PeakMiB, &w.Complete)
		return
	}, `SELECT key, work, uid, args, user, account, name, runs, last,
			(SELECT max(peak) FROM run WHERE run.key = newest.key AND run.uid = newest.uid),
			EXISTS (SELECT 1 FROM run WHERE run.key = newest.key AND run.uid = newest.uid AND samples > 0
				AND ended = '' AND (state = 'COMPLETED' OR state = 'TIMEOUT' AND median >= 0.9 * peak))
		FROM (SELECT key, work, uid, args, user, account, name, count(*) AS runs, max(start) AS last
			FROM run WHERE `+where+` GROUP BY key, uid) AS newest
		ORDER BY last DESC, key, uid`, args...)
}

// Extent returns the number of runs, the start of the first run, and the end of the newest one. Without runs, the times
// are zero.
func (r *Repo) Extent() (n int, first, newest time.Time, err error) {
	var from, to int64
	err = r.read(func(q *sql.DB) error {
		return q.QueryRow(`SELECT count(*), coalesce(min(start), 0), coalesce(CAST(max(start + seconds) AS INTEGER), 0)
			FROM run`).Scan(&n, &from, &to)
	})
	if err != nil || n == 0 {
		return n, first, newest, err
	}
	return n, time.Unix(from, 0), time.Unix(to, 0), nil
}

// Job lists the runs of a job, oldest first.
func (r *Repo) Job(id uint32) ([]predict.Run, error) {
	runs, err := r.runs("job = ?", id)
	slices.SortFunc(runs, compare)
	return runs, err
}

// Users returns the ids of the users who have runs under this user name.
func (r *Repo) Users(name string) ([]uint32, error) {
	return query(r, func(rows *sql.Rows) (uid uint32, err error) {
		err = rows.Scan(&uid)
		return
	}, "SELECT DISTINCT uid FROM run WHERE user = ? ORDER BY uid", name)
}

// allUsers is the id that stands for all users in the table of forgotten runs. In this table, an empty key stands for
// all keys.
const allUsers = -1

// ForgetKey removes all runs with the given key, whoever owns them, that began before now. It returns the number of
// removed runs. Later syncs will not add them again.
func (r *Repo) ForgetKey(key string, now time.Time) (int, error) {
	return r.forget(key, allUsers, now)
}

// ForgetKeyOf is like ForgetKey, but removes only one user's runs.
func (r *Repo) ForgetKeyOf(uid uint32, key string, now time.Time) (int, error) {
	return r.forget(key, int64(uid), now)
}

// ForgetUser is like ForgetKey, but removes all of a user's runs.
func (r *Repo) ForgetUser(uid uint32, now time.Time) (int, error) {
	return r.forget("", int64(uid), now)
}

// ForgetBefore is like ForgetKey, but removes all runs that began before the given time.
func (r *Repo) ForgetBefore(at time.Time) (int, error) { return r.forget("", allUsers, at) }

func (r *Repo) forget(key string, uid int64, before time.Time) (n int, err error) {
	err = r.do(func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO forgotten (key, uid, before) VALUES (?, ?, ?)
			ON CONFLICT (key, uid) DO UPDATE SET before = max(before, excluded.before)`, key, uid, before.Unix())
		if err != nil {
			return err
		}
		n, err = deleted(tx, "start < ?1 AND ?2 IN ('', key) AND ?3 IN (-1, uid)", before.Unix(), key, uid)
		return err
	})
	return n, err
}

func deleted(tx *sql.Tx, where string, args ...any) (int, error) {
	done, err := tx.Exec("DELETE FROM run WHERE "+where, args...)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// These constants limit the runs in a repository: keepOfKey is the maximum number of runs for each of a user's keys,
// keepFor is the maximum age of a run, and keepInAll is the maximum number of runs in total (about 100 MB).
const (
	keepOfKey = 128
	keepFor   = 400 * 24 * time.Hour
	keepInAll = 400_000
)

// Prune removes runs that are too old or exceed a limit and returns the number of removed runs. If there are too many
// runs in total, all users have the same limit, and the oldest runs of users who exceed this limit are removed. A run's
// age is measured from the newest run or from now, whichever is earlier, so that a clock that is ahead does not cause
// any removals.
func (r *Repo) Prune(now time.Time) (n int, err error) {
	return r.prune(now, keepOfKey, keepInAll)
}

func (r *Repo) prune(now time.Time, ofKey, inAll int) (n int, err error) {
	err = r.do(func(tx *sql.Tx) error {
		old, err := deleted(
			tx,
			"start < min(?1, (SELECT max(start) FROM run)) - ?2",
			now.Unix(),
			int(keepFor/time.Second),
		)
		if err != nil {
			return err
		}
		many, err := deleted(
			tx,
			`(job, restart, node, start) IN (SELECT job, restart, node, start FROM (SELECT job, restart, node, start,
			row_number() OVER (PARTITION BY key, uid ORDER BY start DESC, job DESC) AS nth FROM run WHERE (key, uid) IN
			(SELECT key, uid FROM run GROUP BY key, uid HAVING count(*) > ?1)) WHERE nth > ?1)`,
			ofKey,
		)
		if err != nil {
			return err
		}
		share, err := userShare(tx, inAll)
		if err != nil {
			return err
		}
		if share == math.MaxInt {
			n = old + many
			return nil
		}
		more, err := deleted(
			tx,
			`(job, restart, node, start) IN (SELECT job, restart, node, start FROM (SELECT job, restart, node, start,
			row_number() OVER (PARTITION BY uid ORDER BY start DESC, job DESC, restart DESC, node DESC) AS nth
			FROM run) WHERE nth > ?1)`,
			share,
		)
		n = old + many + more
		return err
	})
	return n, err
}

// userShare returns the maximum number of runs per user: the largest number for which the total does not exceed room,
// or math.MaxInt if no limit is necessary.
func userShare(tx *sql.Tx, room int) (int, error) {
	counts, err := sqlite.List(tx, func(rows *sql.Rows) (n int, err error) {
		err = rows.Scan(&n)
		return
	}, "SELECT count(*) FROM run GROUP BY uid ORDER BY count(*)")
	for i, n := range counts {
		if share := room / (len(counts) - i); n > share {
			return share, err
		}
		room -= n
	}
	return math.MaxInt, err
}
