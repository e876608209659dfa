package repo

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/core/predict"
)

// columns lists the names of a run's columns, in the same order as fields.
const columns = `job, restart, node, start, key, work, uid, user, account, name, board, profile, slices, seconds,
	samples, peak, median, high, util, state, exit, processes, ended, foreseen, xids, args`

func fields(n *predict.Run) []any {
	return []any{
		&n.Job,
		&n.Restart,
		&n.Node,
		&n.Start,
		&n.Key,
		&n.Fingerprint,
		&n.UID,
		&n.User,
		&n.Account,
		&n.Name,
		&n.GPUType,
		&n.Profile,
		&n.Slices,
		&n.Seconds,
		&n.Samples,
		&n.PeakMiB,
		&n.MedianMiB,
		&n.HighMiB,
		&n.Util,
		&n.State,
		&n.Exit,
		&n.Processes,
		&n.End,
		&n.ForeseenMiB,
		&n.Xids,
		(*numbers)(&n.Args),
	}
}

// numbers is the column of Run.Args, for example "2000,64".
type numbers []float64

// Scan reads the column.
func (n *numbers) Scan(column any) error {
	s, ok := column.(string)
	if !ok {
		return fmt.Errorf("the column args contains a %T", column)
	}
	*n = predict.ParseNumbers(s)
	return nil
}

// Value writes the column.
func (n numbers) Value() (driver.Value, error) { return predict.FormatNumbers(n), nil }

// insert is a statement that adds a run unless the run already exists or has been forgotten.
const insert = `INSERT OR IGNORE INTO run (` + columns + `)
	SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
	?24, ?25, ?26
	WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE key IN ('', ?5) AND uid IN (-1, ?7) AND before > ?4)`

// complete is a statement that updates an existing run. Unknown values do not replace known ones.
const complete = `UPDATE run SET
	key = iif(?5 <> '', ?5, key), work = iif(?6 <> '', ?6, work), uid = iif(?5 <> '' OR ?8 <> '', ?7, uid),
	user = iif(?8 <> '', ?8, user), account = iif(?9 <> '', ?9, account), name = iif(?10 <> '', ?10, name),
	board = ?11, profile = ?12, slices = ?13, seconds = max(seconds, ?14),
	peak = iif(?15 >= samples, ?16, peak), median = iif(?15 >= samples, ?17, median),
	high = iif(?15 >= samples, ?18, high), util = iif(?15 >= samples, ?19, util),
	processes = max(processes, ?22), samples = max(samples, ?15),
	ended = iif(?23 <> '', ?23, ended), foreseen = iif(?24 > 0, ?24, foreseen),
	xids = iif(?25 <> '', ?25, xids), args = iif(?26 <> '', ?26, args),
	exit = iif(?20 <> '', ?21, exit), state = iif(?20 <> '', ?20, state)
	WHERE job = ?1 AND restart = ?2 AND node = ?3 AND start = ?4`

// Add stores all of the runs, or none if it fails, and returns the number of new ones. If a run with the same job,
// restart count, node and start already exists, Add completes it, but unknown values do not replace known ones.
// Forgotten runs are not stored.
func (r *Repo) Add(runs ...predict.Run) (added int, err error) {
	err = r.do(func(tx *sql.Tx) error {
		a, err := newAdder(tx)
		if err != nil {
			return err
		}
		for _, n := range runs {
			if err := a.add(n); err != nil {
				return err
			}
		}
		added = a.added
		return nil
	})
	return added, err
}

// adder adds runs within one transaction.
type adder struct {
	insert, complete *sql.Stmt
	added            int // the number of new runs
}

func newAdder(tx *sql.Tx) (a adder, err error) {
	if a.insert, err = tx.Prepare(insert); err == nil {
		a.complete, err = tx.Prepare(complete)
	}
	return a, err // the end of the transaction closes the statements
}

func (a *adder) add(n predict.Run) error {
	n, err := fromSummary(n)
	if err != nil {
		return err
	}
	done, err := a.insert.Exec(fields(&n)...)
	if err != nil {
		return err
	}
	if new, err := done.RowsAffected(); err != nil || new > 0 {
		a.added += int(new)
		return err
	}
	_, err = a.complete.Exec(fields(&n)...)
	return err
}

// errInvalid is the error for a run that could not be restored from its summary in slurmdbd.
var errInvalid = errors.New("is invalid; nothing was recorded")

// fromSummary returns the run as its summary describes it, with long names shortened. A run observed by the agent is
// therefore equal to the same run read from slurmdbd.
func fromSummary(n predict.Run) (predict.Run, error) {
	summaries := predict.Summaries(n.Summary())
	if len(summaries) != 1 || n.Job == 0 || !IsHash(n.Key) || !IsHash(n.Fingerprint) {
		return n, fmt.Errorf("the run of job %d on %.64q at %d %w", n.Job, n.Node, n.Start, errInvalid)
	}
	k := summaries[0]
	k.GPUType = strings.ToLower(k.GPUType) // sacctmgr 22.05 writes the model in lower case
	k.Job, k.Key, k.Fingerprint, k.UID, k.Exit = n.Job, n.Key, n.Fingerprint, n.UID, n.Exit
	k.Args = predict.ParseNumbers(predict.FormatNumbers(n.Args))
	k.User, k.Account, k.Name, k.State = text(n.User), text(n.Account), text(n.Name), text(n.State)
	return k, nil
}

// IsHash reports whether a string is empty, or is a key or a script fingerprint (16 hexadecimal digits).
func IsHash(s string) bool {
	return s == "" || len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// textBytes is the maximum length of a stored name in bytes.
const textBytes = 256

// text returns a name in the form in which the repository stores it. slurmdbd replaces a double quote with ` (22.05.8).
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), textBytes)], "?"), `"`, "`")
}

// Window is the maximum number of runs in a history, which holds the newest ones.
const Window = 64

// ByKey returns the history of a user's runs with the given key. It does not include other users' runs. The key is not
// a cryptographic hash, so another user could write a script with the same key. The history does not include runs
// without a script either, because their key does not identify the program.
func (r *Repo) ByKey(uid uint32, key string) (predict.History, error) {
	if key == "" {
		return predict.History{}, nil
	}
	return r.history(predict.ByKey, "key = ? AND uid = ? AND work <> ''", key, uid)
}

// RunsOfKey returns a user's newest runs with the given key, oldest first, including runs without a script.
func (r *Repo) RunsOfKey(uid uint32, key string) ([]predict.Run, error) {
	h, err := r.history(predict.ByKey, "key = ? AND uid = ?", key, uid)
	return h.Runs, err
}

// Owners returns the ids of the users who have runs with the given key.
func (r *Repo) Owners(key string) ([]uint32, error) {
	return query(r, func(rows *sql.Rows) (uid uint32, err error) {
		err = rows.Scan(&uid)
		return
	}, "SELECT DISTINCT uid FROM run WHERE key = ? ORDER BY uid", key)
}

// ByUser returns the history of a user's runs with this script fingerprint, regardless of their job names.
func (r *Repo) ByUser(uid uint32, fingerprint string) (predict.History, error) {
	if fingerprint == "" {
		return predict.History{}, nil
	}
	return r.history(predict.ByUser, "work = ? AND uid = ?", fingerprint, uid)
}

// BySite returns the histories of all runs with this script fingerprint, one per user, ordered by user id.
func (r *Repo) BySite(fingerprint string) (users []predict.History, err error) {
	if fingerprint == "" {
		return nil, nil
	}
	runs, err := r.runs(
		`work = ?1 AND (job, restart, node, start) IN (SELECT job, restart, node, start FROM (
			SELECT job, restart, node, start,
				row_number() OVER (PARTITION BY uid ORDER BY start DESC, job DESC, restart DESC, node DESC) AS nth
			FROM run WHERE work = ?1) WHERE nth <= ?2)
		ORDER BY uid, start, job, restart, node`,
		fingerprint,
		Window,
	)
	for _, n := range runs {
		if len(users) == 0 || users[len(users)-1].Runs[0].UID != n.UID {
			users = append(users, predict.History{Level: predict.BySite})
		}
		last := &users[len(users)-1]
		last.Runs = append(last.Runs, n)
	}
	return users, err
}

func (r *Repo) history(level predict.Level, where string, args ...any) (predict.History, error) {
	runs, err := r.runs(
		where+" ORDER BY start DESC, job DESC, restart DESC, node DESC LIMIT "+fmt.Sprint(Window),
		args...)
	slices.Reverse(runs)
	return predict.History{Level: level, Runs: runs}, err
}

// runs returns the runs that satisfy a condition. The condition is always a constant in this package, and all strings
// from users are in args.
func (r *Repo) runs(where string, args ...any) ([]predict.Run, error) {
	return query(r, func(rows *sql.Rows) (n predict.Run, err error) {
		err = rows.Scan(fields(&n)...)
		return
	}, "SELECT "+columns+" FROM run WHERE "+where, args...)
}

// JobKeys holds a job's key, script fingerprint, name and user, which together identify its earlier runs and those of
// similar jobs, and the numbers in its arguments (predict.Run.Args). Unknown fields are empty.
type JobKeys struct {
	Key, Fingerprint, Name string
	UID                    uint32
	Args                   []float64
}

// PredictAt returns a job's need according to the runs of one level: the runs with the job's key, the user's runs with
// the same script fingerprint or, if the site shares runs, all users' runs with this fingerprint. It returns false if
// no run was complete; the need is then empty or only a lower bound. learn.Table.Predict combines the levels.
func (r *Repo) PredictAt(
	level predict.Level, job JobKeys, site predict.Site,
) (need predict.Need, h predict.History, ok bool, err error) {
	switch {
	case level == predict.ByKey:
		h, err = r.ByKey(job.UID, job.Key)
	case level == predict.ByUser:
		h, err = r.ByUser(job.UID, job.Fingerprint)
	case level == predict.BySite && site.Share:
		users, err := r.BySite(job.Fingerprint)
		if err == nil {
			need, ok = predict.PredictShared(users, site)
		}
		return need, together(users), ok, err
	}
	if err == nil {
		need, ok = predict.Predict(h, site)
	}
	return need, h, ok, err
}

// Similar returns the history of a user's runs of all scripts, or only of those with a job name if the level is
// predict.ByName.
func (r *Repo) Similar(level predict.Level, job JobKeys) (predict.History, error) {
	if level == predict.ByName {
		return r.history(level, "uid = ? AND name = ? AND work <> ''", job.UID, text(job.Name))
	}
	return r.history(level, "uid = ? AND work <> ''", job.UID)
}

// together merges the histories of several users into one history with the newest runs.
func together(users []predict.History) predict.History {
	h := predict.History{Level: predict.BySite}
	for _, u := range users {
		h.Runs = append(h.Runs, u.Runs...)
	}
	slices.SortFunc(h.Runs, compare)
	h.Runs = h.Runs[max(0, len(h.Runs)-Window):]
	return h
}

// compare orders runs by start, and then by the other fields that identify them.
func compare(a, b predict.Run) int {
	return cmp.Or(
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.Job, b.Job),
		cmp.Compare(a.Restart, b.Restart),
		cmp.Compare(a.Node, b.Node),
	)
}
