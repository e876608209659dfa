package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	_ "github.com/mattn/go-sqlite3"
)

// Kind is what a database is.
type Kind struct {
	Name   string   // "ledger"
	Schema []string // one list of statements per version; user_version counts how many have been applied
	Tables []string // of the schema
	// Options are of the connection, as go-sqlite3 has them: "_busy_timeout=5000".
	Options string
	// What to do about one that is damaged, and about another program's.
	Damaged, Foreign string
	// Busy makes the error of a lock that another process keeps; nil: as it comes.
	Busy func(text string) error
}

// DB is an open database. Its methods may be called concurrently, and by several processes.
type DB struct {
	kind Kind
	path string
	sql  *sql.DB
}

// checkpointPages is after how many pages of 4 KiB the -wal is written into the database and begun anew. Ledgers and
// repositories are smaller than that; a larger -wal would only take room on the disk.
const checkpointPages = 64

// Open opens or makes the database at path, for its owner alone; its folder is there. ErrDamaged, ErrForeign and
// ErrNewer leave the file as it is.
func Open(path string, kind Kind) (*DB, error) {
	d := &DB{kind: kind, path: path}
	// SQLite would make it as the umask says; its -wal and -shm get the mode of the file itself.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, kind.ExplainFile(path, err)
	}
	err = looksRight(f)
	f.Close()
	if err != nil {
		return nil, kind.ExplainFile(path, err)
	}
	// synchronous=NORMAL loses nothing over a crash of a process; over one of the machine the last transactions.
	d.sql, err = sql.Open(
		"sqlite3",
		"file:"+(&url.URL{Path: path}).EscapedPath()+"?_synchronous=NORMAL&_txlock=immediate&"+kind.Options,
	)
	if err != nil {
		return nil, d.explain(err)
	}
	d.sql.SetMaxOpenConns(1)
	err = d.migrate()
	if err == nil {
		// Now that the file is known to be ours: this changes it. The -wal grows to checkpointPages, SQLite's default
		// being 4 MiB.
		_, err = d.sql.Exec(fmt.Sprintf("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = %d", checkpointPages))
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		d.sql.Close()
		return nil, d.explain(err)
	}
	return d, nil
}

// looksRight reports what is no database: SQLite would take one of less than a page for an empty one, and write over
// it.
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
	return ErrDamaged
}

// migrate brings the schema up to date, in one transaction: another process may be about to do the same.
func (d *DB) migrate() error {
	return d.Do(func(tx *sql.Tx) error {
		version, err := d.kind.version(tx)
		if err != nil || version == len(d.kind.Schema) {
			return err
		}
		for ; version < len(d.kind.Schema); version++ {
			if _, err := tx.Exec(d.kind.Schema[version]); err != nil {
				return err
			}
		}
		_, err = tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// version is how many lists of the schema have been applied to a database that is whole, and of this kind or empty.
func (k Kind) version(tx *sql.Tx) (version int, err error) {
	var health string
	if err := tx.QueryRow("SELECT (SELECT * FROM pragma_quick_check LIMIT 1), (SELECT * FROM pragma_user_version)").Scan(&health, &version); err != nil {
		return 0, err
	}
	tables, err := List(tx, func(r *sql.Rows) (name string, err error) {
		err = r.Scan(&name)
		return
	}, "SELECT name FROM sqlite_master WHERE type = 'table'")
	missing := slices.ContainsFunc(k.Tables, func(name string) bool { return !slices.Contains(tables, name) })
	switch {
	case err != nil:
		return 0, err
	case health != "ok":
		return 0, ErrDamaged
	case missing && len(tables) > 0 || version > 0 && len(tables) == 0 || version < 0:
		return 0, ErrForeign
	case version > len(k.Schema):
		return 0, fmt.Errorf(
			"%w: its schema is version %d and this one knows up to %d; install that release again",
			ErrNewer,
			version,
			len(k.Schema),
		)
	}
	return version, nil
}

// Close closes the database.
func (d *DB) Close() error { return d.sql.Close() }

// Do runs f in one transaction.
func (d *DB) Do(f func(*sql.Tx) error) error {
	tx, err := d.sql.Begin()
	if err != nil {
		return d.explain(err)
	}
	if err := f(tx); err != nil {
		tx.Rollback()
		return d.explain(err)
	}
	return d.explain(tx.Commit())
}

// Exec runs statements in one transaction.
func (d *DB) Exec(text string, args ...any) error {
	return d.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec(text, args...)
		return err
	})
}

// Read runs f, which changes nothing.
func (d *DB) Read(f func(*sql.DB) error) error { return d.explain(f(d.sql)) }

// List lists what a query finds. Its errors are explained by Do and Read, in which it is used.
func List[T any](q interface {
	Query(text string, args ...any) (*sql.Rows, error)
}, row func(*sql.Rows) (T, error), text string, args ...any) (all []T, err error) {
	rows, err := q.Query(text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := row(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
