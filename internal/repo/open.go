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
`, `
ALTER TABLE run ADD COLUMN processes INTEGER NOT NULL DEFAULT 0;
`, `
DROP INDEX run_key;
CREATE INDEX run_key   ON run (key, uid, start);
CREATE INDEX run_user  ON run (uid, start);
`}

// kind is what a repository is. What the last transactions before a crash of the machine said slurmdbd has too.
var kind = sqlite.Kind{
	Name: "repository", Schema: schema, Tables: []string{"meta", "run", "forgotten", "open", "outbox"}, Options: "_busy_timeout=30000&_foreign_keys=on",
}

// Repo is the repository. Its methods may be called concurrently, and by several processes; their errors say what to
// do.
//
// A repository can be filled anew, so that nobody has to be asked what to do about a damaged one: it is set aside when
// it is opened, and a new one begun.
type Repo struct {
	path string
	say  func(string) // nil: what is no repository is left as it is
	// it goes over to what stands at the path whenever that is another file, or found to be damaged
	follows bool
	mu      sync.Mutex
	db      *sqlite.DB
	file    os.FileInfo // of db, when it was last used
}

// Open opens or makes the repository at path, root's alone. A file that is damaged, or another program's, is set aside
// as <path>.damaged-<time> and a new one begun; say is then told so in one sentence. One of a newer release is refused
// and left as it is. Its folder is made root-only if it does not exist.
func Open(path string, say func(string)) (*Repo, error) { return opened(&Repo{path: path, say: say}) }

// At is Open for who has it open for ever: it is opened when it is first used, tried again after an error, and opened
// anew when it is damaged, or when another file stands at the path.
func At(path string, say func(string)) *Repo { return &Repo{path: path, say: say, follows: true} }

// OpenAsItIs is Open for a path that a person typed: what is no repository is refused and left as it is, and no folder
// is made.
func OpenAsItIs(path string) (*Repo, error) { return opened(&Repo{path: path}) }

func opened(r *Repo) (*Repo, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// open opens what stands at the path while no other process does so in that folder: else one might set aside what
// another has just begun.
func (r *Repo) open() error {
	if r.say != nil {
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
	if r.say != nil && (errors.Is(err, sqlite.ErrDamaged) || errors.Is(err, sqlite.ErrForeign)) {
		aside, asideErr := setAside(r.path)
		if asideErr != nil {
			return asideErr
		}
		r.say(
			fmt.Sprintf(
				"%v; it was set aside as %s, and a new one begun: `caelum repo sync` fills it from slurmdbd",
				err,
				aside,
			),
		)
		db, err = sqlite.Open(r.path, kind)
	}
	if err != nil {
		return err
	}
	r.db = db
	r.file, err = os.Stat(r.path)
	return err
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

// Close closes the database.
func (r *Repo) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.db == nil {
		return nil
	}
	return r.db.Close()
}

// with has f use what stands at the path. If f finds that damaged it is opened anew the next time, and set aside then.
func (r *Repo) with(f func(*sqlite.DB) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.follows {
		return f(r.db)
	}
	if file, err := os.Stat(r.path); r.db != nil {
		// no database of SQLite's becomes smaller by itself
		if err != nil || !os.SameFile(file, r.file) || file.Size() < r.file.Size() {
			r.shut()
			r.say("another repository stands at " + r.path + ", or none: what is kept from now on goes there")
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
		r.shut()
	}
	return err
}

func (r *Repo) shut() {
	r.db.Close()
	r.db = nil
}

// twice is with, and with again what stands in the place of a damaged one.
func (r *Repo) twice(f func(*sqlite.DB) error) error {
	err := r.with(f)
	if r.follows && errors.Is(err, sqlite.ErrDamaged) {
		return r.with(f)
	}
	return err
}

func (r *Repo) do(f func(*sql.Tx) error) error {
	return r.twice(func(db *sqlite.DB) error { return db.Do(f) })
}

func (r *Repo) exec(text string, args ...any) error {
	return r.twice(func(db *sqlite.DB) error { return db.Exec(text, args...) })
}

func (r *Repo) read(f func(*sql.DB) error) error {
	return r.twice(func(db *sqlite.DB) error { return db.Read(f) })
}

func query[T any](r *Repo, row func(*sql.Rows) (T, error), text string, args ...any) (all []T, err error) {
	err = r.read(func(q *sql.DB) (err error) {
		all, err = sqlite.List(q, row, text, args...)
		return err
	})
	return all, err
}
