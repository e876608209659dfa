package repo

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"caelum/internal/sqlite"
)

// DefaultPath is the path of the repository unless caelum.yaml sets another one.
const DefaultPath = "/var/lib/caelum/repo.db"

// WatcherPath is the path of the repository of a watcher that does not run as root, if caelum.yaml sets no path.
const WatcherPath = "/var/lib/caelum-watch/repo.db"

// Find returns path, or WatcherPath if path is DefaultPath and this host has a watcher's repository. It contains the
// runs of all nodes; an agent's repository on the same host contains only its node's runs.
func Find(path string) string {
	if path == DefaultPath {
		if _, err := os.Stat(WatcherPath); err == nil {
			return WatcherPath
		}
	}
	return path
}

// schema holds the SQL statements of each version. A database's user_version is the number of these versions that
// have been applied to it.
var schema = []string{`
CREATE TABLE meta      (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE run       (job INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, start INTEGER NOT NULL,
                        key TEXT NOT NULL, work TEXT NOT NULL, uid INTEGER NOT NULL, user TEXT NOT NULL,
                        account TEXT NOT NULL, name TEXT NOT NULL, board TEXT NOT NULL, profile TEXT NOT NULL,
                        slices INTEGER NOT NULL, seconds REAL NOT NULL, samples INTEGER NOT NULL, peak REAL NOT NULL,
                        median REAL NOT NULL, high REAL NOT NULL, util REAL NOT NULL, state TEXT NOT NULL,
                        exit INTEGER NOT NULL, PRIMARY KEY (job, restart, node, start)) WITHOUT ROWID;
CREATE INDEX run_key   ON run (key, start);
CREATE INDEX run_work  ON run (work, uid, start);
CREATE INDEX run_start ON run (start);
CREATE TABLE forgotten (key TEXT NOT NULL, uid INTEGER NOT NULL, before INTEGER NOT NULL,
                        PRIMARY KEY (key, uid)) WITHOUT ROWID;
CREATE TABLE open      (job INTEGER NOT NULL, restart INTEGER NOT NULL, observation BLOB NOT NULL,
                        PRIMARY KEY (job, restart)) WITHOUT ROWID;
CREATE TABLE outbox    (job INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, start INTEGER NOT NULL,
                        since INTEGER NOT NULL, due INTEGER NOT NULL, tries INTEGER NOT NULL, written INTEGER NOT NULL,
                        PRIMARY KEY (job, restart, node, start),
                        FOREIGN KEY (job, restart, node, start) REFERENCES run ON DELETE CASCADE) WITHOUT ROWID;
`, `
ALTER TABLE run ADD COLUMN processes INTEGER NOT NULL DEFAULT 0;
`, `
DROP INDEX run_key;
CREATE INDEX run_key   ON run (key, uid, start);
CREATE INDEX run_user  ON run (uid, start);
`, `
ALTER TABLE run ADD COLUMN ended TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN foreseen REAL NOT NULL DEFAULT 0;
`, `
ALTER TABLE run ADD COLUMN xids TEXT NOT NULL DEFAULT '';
`, `
ALTER TABLE run ADD COLUMN args TEXT NOT NULL DEFAULT '';
`, `
CREATE INDEX run_name ON run (uid, name, start);
`}

// kind describes the database. After a crash of the machine, the last transactions may be missing. A sync restores
// their runs from slurmdbd.
var kind = sqlite.Kind{
	Name:    "repository",
	Schema:  schema,
	Tables:  []string{"meta", "run", "forgotten", "open", "outbox"},
	Options: "_busy_timeout=30000&_foreign_keys=on",
}

// Supports returns the schema version that this release creates.
func Supports() int { return kind.Supports() }

// VersionAt returns the schema version of the repository at path, or 0 if there is no repository. It does not change
// the file.
func VersionAt(path string) (int, error) { return kind.VersionAt(path) }

// Repo is an open repository of earlier runs. A repository may be used by several goroutines and processes at the same
// time. The errors that the methods return include a remedy.
//
// If a repository is damaged, Open sets the file aside and creates a new one. No administrator needs to intervene,
// because a sync can reread the runs from slurmdbd.
type Repo struct {
	path    string
	report  func(string) // nil if a file that is not a repository must not be changed
	reopens bool         // true if a method reopens the path after the file was replaced or damaged
	mu      sync.Mutex
	db      *sqlite.DB
	file    os.FileInfo // identifies db's file at its last use
}

// Open opens the repository at path, or creates a new one, which only its owner can read. If the file is damaged or is
// another program's database, Open renames it to <path>.damaged-<time>, creates a new repository, and calls report with
// a message about the damage. If a newer release wrote the repository, it returns an error and does not change the
// file. If the directory does not exist, it creates one that only its owner can read.
func Open(path string, report func(string)) (*Repo, error) {
	return opened(&Repo{path: path, report: report})
}

// At is like Open, but for long-running callers. The repository is opened when it is first used. After an error, or if
// the file was damaged or replaced, the next use reopens the path.
func At(path string, report func(string)) *Repo {
	return &Repo{path: path, report: report, reopens: true}
}

// OpenAsItIs is like Open, but for a path that was given on the command line. If the file is not a repository, it
// returns an error and leaves the file unchanged. It never creates a directory.
func OpenAsItIs(path string) (*Repo, error) { return opened(&Repo{path: path}) }

func opened(r *Repo) (*Repo, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// open locks the directory and then opens the file at the path. Without this lock, two processes could detect the
// same damaged file, and the second would then set aside the new repository that the first has created.
func (r *Repo) open() error {
	if r.report != nil {
		if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
			return kind.ExplainFile(r.path, err)
		}
	}
	folder, err := os.Open(filepath.Dir(r.path))
	if err != nil {
		return kind.ExplainFile(r.path, err)
	}
	defer folder.Close()
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return kind.ExplainFile(r.path, err)
	}
	db, err := sqlite.Open(r.path, kind)
	if r.report != nil && (errors.Is(err, sqlite.ErrDamaged) || errors.Is(err, sqlite.ErrForeign)) {
		aside, asideErr := setAside(r.path)
		if asideErr != nil {
			return asideErr
		}
		r.report(fmt.Sprintf("%v; the file was set aside as %s, and a new repository was created; "+
			"run `caelum repo sync` to read the runs from slurmdbd", err, aside))
		db, err = sqlite.Open(r.path, kind)
	}
	if err != nil {
		return err
	}
	r.db = db
	r.file, err = os.Stat(r.path)
	return err
}

// setAside renames the file at path and its journals and returns the new name.
func setAside(path string) (string, error) {
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	for _, end := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+end, aside+end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("couldn't set the damaged repository aside: %w; move %s away", err, path)
		}
	}
	return aside, nil
}

// Close closes the database.
func (r *Repo) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.db == nil {
		return nil
	}
	return r.db.Close()
}

// with calls f with the database. If f detects damage, the next call reopens the path, and open sets the damaged file
// aside.
func (r *Repo) with(f func(*sqlite.DB) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reopens {
		return f(r.db)
	}
	if file, err := os.Stat(r.path); r.db != nil {
		// SQLite does not shrink a database file. If the file is smaller than before, another program truncated it.
		if err != nil || !os.SameFile(file, r.file) || file.Size() < r.file.Size() {
			r.closeDB()
			r.report("the repository " + r.path + " was replaced, truncated or removed; reopening the path")
		} else {
			r.file = file
		}
	}
	if r.db == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	err := f(r.db)
	if errors.Is(err, sqlite.ErrDamaged) {
		r.closeDB()
	}
	return err
}

func (r *Repo) closeDB() {
	r.db.Close()
	r.db = nil
}

// retry is like with, but if the database was damaged, it calls f a second time with the new database.
func (r *Repo) retry(f func(*sqlite.DB) error) error {
	err := r.with(f)
	if r.reopens && errors.Is(err, sqlite.ErrDamaged) {
		return r.with(f)
	}
	return err
}

func (r *Repo) do(f func(*sql.Tx) error) error {
	return r.retry(func(db *sqlite.DB) error { return db.Do(f) })
}

func (r *Repo) exec(text string, args ...any) error {
	return r.retry(func(db *sqlite.DB) error { return db.Exec(text, args...) })
}

func (r *Repo) read(f func(*sql.DB) error) error {
	return r.retry(func(db *sqlite.DB) error { return db.Read(f) })
}

func query[T any](r *Repo, row func(*sql.Rows) (T, error), text string, args ...any) (all []T, err error) {
	err = r.read(func(q *sql.DB) (err error) {
		all, err = sqlite.List(q, row, text, args...)
		return err
	})
	return all, err
}
