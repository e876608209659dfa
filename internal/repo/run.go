package repo

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"caelum/internal/predict"
)

// columns are those of a run, in the order of fields.
const columns = `job, restart, node, start, key, work, uid, user, account, name, board, profile, slices, seconds,
	samples, peak, median, high, util, state, exit, processes`

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
		&n.Board,
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
	}
}

// insert puts a run in that is not there yet, unless it is to be forgotten.
const insert = `INSERT OR IGNORE INTO run (` + columns + `) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
	WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE key IN ('', ?5) AND uid IN (-1, ?7) AND before > ?4)`

// complete adds what is known now to a run that is there: what is not known leaves what was.
const complete = `UPDATE run SET
	key = iif(?5 <> '', ?5, key), work = iif(?6 <> '', ?6, work), uid = iif(?5 <> '' OR ?8 <> '', ?7, uid), user = iif(?8 <> '', ?8, user),
	account = iif(?9 <> '', ?9, account), name = iif(?10 <> '', ?10, name), board = ?11, profile = ?12, slices = ?13, seconds = max(seconds, ?14),
	peak = iif(?15 >= samples, ?16, peak), median = iif(?15 >= samples, ?17, median), high = iif(?15 >= samples, ?18, high),
	util = iif(?15 >= samples, ?19, util), processes = max(processes, ?22), samples = max(samples, ?15),
	exit = iif(?20 <> '', ?21, exit), state = iif(?20 <> '', ?20, state)
	WHERE job = ?1 AND restart = ?2 AND node = ?3 AND start = ?4`

// Add keeps runs, all or none, and says how many of them were new. A run that is there already (the same job, restart,
// node and start) is completed: what is known is not overwritten by what is not. A run that was forgotten stays so.
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

// adder adds runs within a transaction.
type adder struct {
	insert, complete *sql.Stmt
	added            int // that were new
}

func newAdder(tx *sql.Tx) (a adder, err error) {
	if a.insert, err = tx.Prepare(insert); err == nil {
		a.complete, err = tx.Prepare(complete)
	}
	return a, err // the transaction's end closes them
}

func (a *adder) add(n predict.Run) error {
	n, err := kept(n)
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

// errNotKept: a run whose summary cannot be read back could not be made again from slurmdbd.
var errNotKept = errors.New("is not one that can be kept")

// kept is the run as its summary says it, with texts of bounded length: the same whether it was seen here or comes from
// slurmdbd.
func kept(n predict.Run) (predict.Run, error) {
	said := predict.Summaries(n.Summary())
	if len(said) != 1 || n.Job == 0 || !IsHash(n.Key) || !IsHash(n.Fingerprint) {
		return n, fmt.Errorf("the run of job %d on %.64q at %d %w", n.Job, n.Node, n.Start, errNotKept)
	}
	k := said[0]
	k.Board = strings.ToLower(k.Board) // as sacctmgr writes it
	k.Job, k.Key, k.Fingerprint, k.UID, k.Exit = n.Job, n.Key, n.Fingerprint, n.UID, n.Exit
	k.User, k.Account, k.Name, k.State = text(n.User), text(n.Account), text(n.Name), text(n.State)
	return k, nil
}

// IsHash reports whether a text can be a key or a work: 16 hexadecimal digits, or empty where it is not known.
func IsHash(s string) bool {
	return s == "" || len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

const textBytes = 256

// text is a name as it is kept. slurmdbd has ` for a double quote (22.05.8).
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), textBytes)], "?"), `"`, "`")
}

// Window is how many runs a history has at most, the newest.
const Window = 64

// ByKey returns the history of a user's key, the newest runs. The key is no cryptographic hash: another user can craft
// a script with the same key, and her runs are not in it. Runs without a script do not count: their key does not say
// what they ran.
func (r *Repo) ByKey(uid uint32, key string) (predict.History, error) {
	if key == "" {
		return predict.History{}, nil
	}
	return r.history(predict.ByKey, "key = ? AND uid = ? AND work <> ''", key, uid)
}

// OfKey lists the newest runs of a user's key, oldest first, also those without a script.
func (r *Repo) OfKey(uid uint32, key string) ([]predict.Run, error) {
	h, err := r.history(predict.ByKey, "key = ? AND uid = ?", key, uid)
	return h.Runs, err
}

// Owners lists the ids of the users with runs of a key.
func (r *Repo) Owners(key string) ([]uint32, error) {
	return query(r, func(rows *sql.Rows) (uid uint32, err error) {
		err = rows.Scan(&uid)
		return
	}, "SELECT DISTINCT uid FROM run WHERE key = ? ORDER BY uid", key)
}

// ByUser is the history of a user's runs of a work, whatever they were called.
func (r *Repo) ByUser(uid uint32, fingerprint string) (predict.History, error) {
	if fingerprint == "" {
		return predict.History{}, nil
	}
	return r.history(predict.ByUser, "work = ? AND uid = ?", fingerprint, uid)
}

// BySite returns the histories of a work, one for each user, by user id.
func (r *Repo) BySite(fingerprint string) (users []predict.History, err error) {
	if fingerprint == "" {
		return nil, nil
	}
	runs, err := r.runs(
		`work = ?1 AND (job, restart, node, start) IN (SELECT job, restart, node, start FROM (SELECT job, restart, node, start,
		row_number() OVER (PARTITION BY uid ORDER BY start DESC, job DESC, restart DESC, node DESC) AS nth FROM run WHERE work = ?1) WHERE nth <= ?2)
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

// runs reads the runs that a condition of ours, with the arguments in it, selects.
func (r *Repo) runs(where string, args ...any) ([]predict.Run, error) {
	return query(r, func(rows *sql.Rows) (n predict.Run, err error) {
		err = rows.Scan(fields(&n)...)
		return
	}, "SELECT "+columns+" FROM run WHERE "+where, args...)
}

// Of is what a job is known by; what is not known is empty.
type Of struct {
	Key, Fingerprint string
	UID              uint32
}

// Predict says what a job needs by the runs of its key, else of its user's of the same work, else, where the site
// shares them, of everybody's; and by which runs. False: none of them says anything.
func (r *Repo) Predict(job Of, site predict.Site) (predict.Need, predict.History, bool, error) {
	ask := []func() (predict.History, error){
		func() (predict.History, error) { return r.ByKey(job.UID, job.Key) },
		func() (predict.History, error) { return r.ByUser(job.UID, job.Fingerprint) },
	}
	var least predict.Need
	var of predict.History
	for _, history := range ask {
		h, err := history()
		if err != nil {
			return predict.Need{}, h, false, err
		}
		need, ok := predict.Predict(h, site)
		if ok {
			return need, h, true, nil
		}
		if least.PeakMiB == 0 && need.PeakMiB > 0 {
			least, of = need, h
		}
	}
	if site.Share {
		users, err := r.BySite(job.Fingerprint)
		if err != nil {
			return predict.Need{}, predict.History{}, false, err
		}
		if need, ok := predict.PredictShared(users, site); ok {
			return need, together(users), true, nil
		}
	}
	return least, of, false, nil
}

// together is one history of several users' runs, the newest.
func together(users []predict.History) predict.History {
	h := predict.History{Level: predict.BySite}
	for _, u := range users {
		h.Runs = append(h.Runs, u.Runs...)
	}
	slices.SortFunc(h.Runs, compare)
	h.Runs = h.Runs[max(0, len(h.Runs)-Window):]
	return h
}

// compare is the order in which runs are listed: by start, and then by what tells them apart.
func compare(a, b predict.Run) int {
	return cmp.Or(
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.Job, b.Job),
		cmp.Compare(a.Restart, b.Restart),
		cmp.Compare(a.Node, b.Node),
	)
}
