package repo

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
)

// DefaultPath is the repository, unless caelum.yaml names another.
const DefaultPath = "/var/lib/caelum/repo.db"

// schema is one statement list per version; user_version counts how many have been applied.
var schema = []string{`
CREATE TABLE meta      (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE run       (job INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, start INTEGER NOT NULL,
                        key TEXT NOT NULL, work TEXT NOT NULL, uid INTEGER NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, name TEXT NOT NULL,
                        board TEXT NOT NULL, profile TEXT NOT NULL, slices INTEGER NOT NULL, seconds REAL NOT NULL,
                        samples INTEGER NOT NULL, peak REAL NOT NULL, median REAL NOT NULL, high REAL NOT NULL, util REAL NOT NULL,
                        state TEXT NOT NULL, exit INTEGER NOT NULL, PRIMARY KEY (job, restart, node, start)) WITHOUT ROWID;
CREATE INDEX run_key   ON run (key, start);
CREATE INDEX run_work  ON run (work, uid, start);
CREATE INDEX run_start ON run (start);
CREATE TABLE forgotten (key TEXT NOT NULL, uid INTEGER NOT NULL, before INTEGER NOT NULL, PRIMARY KEY (key, uid)) WITHOUT ROWID;
CREATE TABLE open      (job INTEGER NOT NULL, restart INTEGER NOT NULL, observation BLOB NOT NULL, PRIMARY KEY (job, restart)) WITHOUT ROWID;
CREATE TABLE outbox    (job INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, start INTEGER NOT NULL,
                        since INTEGER NOT NULL, due INTEGER NOT NULL, tries INTEGER NOT NULL, written INTEGER NOT NULL,
                        PRIMARY KEY (job, restart, node, start),
                        FOREIGN KEY (job, restart, node, start) REFERENCES run ON DELETE CASCADE) WITHOUT ROWID;
`}

// Repo is the repository. Its methods may be called concurrently, and by several processes; their errors say what to do.
type Repo struct {
	// SetAside says, in one sentence, what became of a file that was no repository; empty as a rule.
	SetAside string

	db   *sql.DB
	path string
}

// errNone are files that hold no repository.
var (
	errDamaged = errors.New("its contents are damaged")
	errForeign = errors.New("it is another program's")
)

// Open opens or makes the repository at path, root's alone. A file that is damaged, or another program's, is set aside as <path>.damaged-<time>
// and a new one begun (SetAside says so); one of a newer release is refused and left as it is. Its folder is made root-only if it does not exist.
func Open(path string) (*Repo, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make the repository's folder: %w", err)
	}
	return locked(path, openOrBegin)
}

func openOrBegin(path string) (*Repo, error) {
	r, err := openAsItIs(path)
	if err == nil || !errors.Is(err, errDamaged) && !errors.Is(err, errForeign) {
		return r, err
	}
	aside, asideErr := setAside(path)
	if asideErr != nil {
		return nil, asideErr
	}
	r, again := openAsItIs(path)
	if again == nil {
		r.SetAside = fmt.Sprintf("%v; it was set aside as %s, and a new one begun: `caelum repo sync` fills it from slurmdbd", err, aside)
	}
	return r, again
}

// OpenAsItIs is Open for a path that a person typed: what is no repository is refused and left as it is.
func OpenAsItIs(path string) (*Repo, error) { return locked(path, openAsItIs) }

// locked opens while no other process does so in that folder: else one might set aside what another has just begun.
func locked(path string, open func(string) (*Repo, error)) (*Repo, error) {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, (&Repo{path: path}).said(err, "see that its folder is there, and that you may read it (the repository is root's)")
	}
	defer folder.Close()
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return nil, (&Repo{path: path}).said(err, "")
	}
	return open(path)
}

func openAsItIs(path string) (*Repo, error) {
	r := &Repo{path: path}
	// SQLite would make it as the umask says; its -wal and -shm get the mode of the file itself.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, r.said(err, "see that its folder is there, and that you may write to it (the repository is root's)")
	}
	err = looksRight(f)
	f.Close()
	if err != nil {
		return nil, r.explain(err)
	}
	// WAL is set when it is known to be ours: it changes the file. synchronous=NORMAL loses nothing over a crash of a process; over one of the machine the last transactions, which slurmdbd has too.
	r.db, err = sql.Open("sqlite3", "file:"+uriPath(path)+"?_synchronous=NORMAL&_busy_timeout=30000&_txlock=immediate&_foreign_keys=on")
	if err != nil {
		return nil, err
	}
	r.db.SetMaxOpenConns(1)
	err = r.migrate()
	if err == nil {
		_, err = r.db.Exec("PRAGMA journal_mode = WAL")
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		r.db.Close()
		return nil, r.explain(err)
	}
	return r, nil
}

// looksRight reports what is no database: SQLite would take one of less than a page for an empty one, and write over it.
func looksRight(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, errors.New("it is a device, a pipe or the like; name a file"))
	}
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	switch n, err := io.ReadFull(f, head); {
	case err == io.EOF || n == len(magic) && string(head) == magic:
		return nil
	case err != nil && err != io.ErrUnexpectedEOF:
		return err
	}
	return errDamaged
}

// Close closes the database.
func (r *Repo) Close() error { return r.db.Close() }

// migrate brings the schema up to date, in one transaction: another process may be about to do the same.
func (r *Repo) migrate() error {
	return r.do(func(tx *sql.Tx) error {
		version, err := version(tx)
		if err != nil || version == len(schema) {
			return err
		}
		for ; version < len(schema); version++ {
			if _, err := tx.Exec(schema[version]); err != nil {
				return err
			}
		}
		_, err = tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// version is how many lists of the schema have been applied to a database that is whole, and a repository or empty.
func version(tx *sql.Tx) (version int, err error) {
	var health string
	var ours, all int
	err = tx.QueryRow(`SELECT (SELECT * FROM pragma_quick_check LIMIT 1), (SELECT * FROM pragma_user_version), count(*),
		count(CASE WHEN name IN ('meta', 'run', 'forgotten', 'open', 'outbox') THEN 1 END) FROM sqlite_master WHERE type = 'table'`).
		Scan(&health, &version, &all, &ours)
	switch {
	case err != nil:
		return 0, err
	case health != "ok":
		return 0, errDamaged
	case ours < 5 && all > 0 || version > 0 && all == 0 || version < 0:
		return 0, errForeign
	case version > len(schema):
		return 0, fmt.Errorf("its schema is version %d and this release knows up to %d: it was written by a newer release; install that one again, or name another file", version, len(schema))
	}
	return version, nil
}

// setAside renames what stands at path, with its journals, and says as what.
func setAside(path string) (string, error) {
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	for _, end := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+end, aside+end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("couldn't set the damaged repository aside: %w; move %s away", err, path)
		}
	}
	return aside, nil
}

// uriPath escapes what means something in SQLite's file: URIs.
func uriPath(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}

// remedies say what to do about the errors of SQLite that somebody can do something about.
var remedies = map[sqlite3.ErrNo]string{
	sqlite3.ErrReadonly: "make the file and its file system writable",
	sqlite3.ErrPerm:     "make the file and its file system writable",
	sqlite3.ErrCantOpen: "see that its folder is there and writable, and that the file is a file",
	sqlite3.ErrIoErr:    "see what the kernel says about the disk with `dmesg`",
}

// explain names the repository and adds what to do. What is damaged is an errDamaged.
func (r *Repo) explain(err error) error {
	var e sqlite3.Error
	var said *explained
	switch {
	case err == nil, errors.As(err, &said):
		return err
	case !errors.As(err, &e):
		return r.said(err, "")
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return r.said(errDamaged, "")
	case e.Code == sqlite3.ErrFull, e.SystemErrno == syscall.ENOSPC:
		return r.said(syscall.ENOSPC, "make room in "+filepath.Dir(r.path))
	case e.Code == sqlite3.ErrBusy, e.Code == sqlite3.ErrLocked:
		return r.said(err, "another process holds it: `fuser "+r.path+"`")
	}
	return r.said(err, remedies[e.Code])
}

// explained is an error that needs no more words.
type explained struct {
	text string
	err  error
}

func (r *Repo) said(err error, remedy string) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	text := fmt.Sprintf("repository %s: %v", r.path, err)
	if remedy != "" {
		text += "; " + remedy
	}
	return &explained{text, err}
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }

func (r *Repo) exec(text string, args ...any) error {
	return r.do(func(tx *sql.Tx) error {
		_, err := tx.Exec(text, args...)
		return err
	})
}

// do runs f in one transaction.
func (r *Repo) do(f func(*sql.Tx) error) error {
	tx, err := r.db.Begin()
	if err != nil {
		return r.explain(err)
	}
	if err := f(tx); err != nil {
		tx.Rollback()
		return r.explain(err)
	}
	return r.explain(tx.Commit())
}

func query[T any](r *Repo, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	rows, err := r.db.Query(text, args...)
	if err != nil {
		return nil, r.explain(err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, r.explain(err)
		}
		all = append(all, v)
	}
	return all, r.explain(rows.Err())
}
