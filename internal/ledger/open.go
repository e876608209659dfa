package ledger

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"caelum/internal/api"
)

// schema is one statement list per version; user_version counts how many have been applied.
var schema = []string{`
CREATE TABLE meta     (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE instance (gpu TEXT NOT NULL, gi INTEGER NOT NULL, profile TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
                       uuid TEXT NOT NULL, job INTEGER NOT NULL DEFAULT 0, stuck INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (gpu, gi));
CREATE TABLE lease    (job INTEGER PRIMARY KEY, restart INTEGER NOT NULL, lease TEXT NOT NULL);
CREATE TABLE intent   (id INTEGER PRIMARY KEY, op TEXT NOT NULL, gpu TEXT NOT NULL, gi INTEGER NOT NULL, profile TEXT NOT NULL,
                       start INTEGER NOT NULL, size INTEGER NOT NULL, job INTEGER NOT NULL, at INTEGER NOT NULL DEFAULT (unixepoch()));
`}

// errDamaged is a database that is one, with something in it that nobody wrote.
var errDamaged = errors.New("its contents are damaged")

// Open opens or makes the ledger at path; its directory is made root-only if it does not exist. A file that is damaged, another
// program's or a newer release's is refused and left as it is.
func Open(path string) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make the ledger's directory: %w", err)
	}
	// synchronous=NORMAL loses nothing over a crash of the agent. A crash of the machine may lose the last
	// transactions, but takes every GPU instance with it too.
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=5000&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	l := &Ledger{db, path}
	err = l.migrate()
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		db.Close()
		return nil, l.explain(err)
	}
	return l, nil
}

func (l *Ledger) migrate() error {
	version, err := l.version()
	if err != nil {
		return err
	}
	for ; version < len(schema); version++ {
		err := l.do(func(tx *sql.Tx) error {
			if _, err := tx.Exec(schema[version]); err != nil {
				return err
			}
			_, err := tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", version+1))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// version is how many lists of the schema have been applied to a database that is whole, and a ledger or empty.
func (l *Ledger) version() (version int, err error) {
	var health string
	var ours, all int
	err = l.db.QueryRow(`SELECT (SELECT * FROM pragma_quick_check LIMIT 1), (SELECT * FROM pragma_user_version), count(*),
		count(CASE WHEN name IN ('meta', 'instance', 'lease', 'intent') THEN 1 END) FROM sqlite_master WHERE type = 'table'`).
		Scan(&health, &version, &all, &ours)
	switch {
	case err != nil:
		return 0, err
	case health != "ok":
		return 0, errDamaged
	case ours < 4 && all > 0 || version > 0 && all == 0:
		return 0, errors.New("it is another program's database; set state_dir to a folder of Caelum's own, or move the file away")
	case version > len(schema):
		return 0, fmt.Errorf("its schema is version %d and this caelumd knows up to %d: it was written by a newer release; install that one again", version, len(schema))
	}
	return version, nil
}

// remedies say what to do about the errors of SQLite that somebody can do something about.
var remedies = map[sqlite3.ErrNo]string{
	sqlite3.ErrReadonly: "make the file and its file system writable",
	sqlite3.ErrPerm:     "make the file and its file system writable",
	sqlite3.ErrCantOpen: "see that its folder is there and writable, and that the file is a file",
	sqlite3.ErrIoErr:    "see what the kernel says about the disk with `dmesg`",
	sqlite3.ErrCorrupt:  moveAway,
	sqlite3.ErrNotADB:   moveAway,
}

const moveAway = "move it away with its -wal and -shm and start caelumd again: the leases of running jobs are then taken from their lease files"

// explain names the ledger and adds what to do. A full disk is a syscall.ENOSPC, and a lock that another process keeps is an
// api.NotNow: both may pass, so whoever asked shall ask again.
func (l *Ledger) explain(err error) error {
	var e sqlite3.Error
	var said *explained
	switch {
	case err == nil, errors.As(err, &said):
		return err
	case errors.Is(err, errDamaged):
		return l.said(err, moveAway)
	case !errors.As(err, &e):
		return l.said(err, "")
	case e.Code == sqlite3.ErrFull, e.SystemErrno == syscall.ENOSPC:
		return l.said(syscall.ENOSPC, "make room in "+filepath.Dir(l.path))
	case e.Code == sqlite3.ErrBusy, e.Code == sqlite3.ErrLocked:
		return l.said(api.NotNow(err.Error()), "another process holds it: `fuser "+l.path+"`")
	}
	return l.said(err, remedies[e.Code])
}

// explained is an error that needs no more words.
type explained struct {
	text string
	err  error
}

func (l *Ledger) said(err error, remedy string) error {
	text := fmt.Sprintf("ledger %s: %v", l.path, err)
	if remedy != "" {
		text += "; " + remedy
	}
	return &explained{text, err}
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }
