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

// Kind describes a kind of database.
type Kind struct {
	Name   string   // the database's name in error messages, such as "ledger"
	Schema []string // the SQL statements of each version; PRAGMA user_version is the number of applied versions
	Tables []string // the tables that exist in all databases of this kind
	// Options are connection options of go-sqlite3, such as "_busy_timeout=5000".
	Options string
	// Damaged is the remedy for a damaged file, and Foreign is the remedy for another program's database.
	Damaged, Foreign string
	// Busy converts the error that SQLite returns when another process holds a lock. If it is nil, the error is
	// returned unchanged.
	Busy func(text string) error
}

// DB is an open database. It is safe for concurrent use by multiple goroutines, and several processes can open the same
// file.
type DB struct {
	kind Kind
	path string
	sql  *sql.DB
}

// checkpointPages is the size of the -wal file, in pages of 4 KiB, at which SQLite writes its pages into the database
// and starts again at the beginning of the file. A larger file would only waste disk space: with SQLite's default
// limit, the -wal files of a ledger and a repository of 40 KiB each grew to 4 MiB.
const checkpointPages = 64

// Open opens the database at path, or creates it with mode 0600. The directory must exist. If the error is ErrDamaged,
// ErrForeign or ErrNewer, Open has not changed the file.
func Open(path string, kind Kind) (*DB, error) {
	d := &DB{kind: kind, path: path}
	// Without this, SQLite would create the file with a mode that depends on the umask. The -wal and -shm files inherit
	// the mode of the database.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, kind.ExplainFile(path, err)
	}
	err = checkHeader(f)
	f.Close()
	if err != nil {
		return nil, kind.ExplainFile(path, err)
	}
	// With synchronous=NORMAL, no transactions are lost if the process crashes, but the most recent ones may be lost if
	// the machine crashes.
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
		// Both PRAGMA statements change the file, so they must follow migrate, which checks it. SQLite's default limit
		// for the -wal file is 4 MiB.
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

// checkHeader returns an error unless f is a regular file that is either empty or begins with the header of an SQLite
// database. SQLite itself treats a file of less than one page as an empty database and overwrites it.
func checkHeader(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, errors.New("the path is not a regular file; specify a file"))
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

// migrate updates the schema to the latest version. It uses a single transaction, because another process may migrate
// the database at the same time.
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

// version returns the number of entries of k.Schema that have been applied to a database. The error is ErrDamaged for a
// damaged database, ErrForeign for a database that is neither empty nor of kind k, and ErrNewer for a database with a
// later version.
func (k Kind) version(tx *sql.Tx) (version int, err error) {
	var health string
	const check = "SELECT (SELECT * FROM pragma_quick_check LIMIT 1), (SELECT * FROM pragma_user_version)"
	if err := tx.QueryRow(check).Scan(&health, &version); err != nil {
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
			"%w: the schema has version %d, but this release supports at most version %d; "+
				"install the newer release again",
			ErrNewer, version, len(k.Schema),
		)
	}
	return version, nil
}

// Close closes the database.
func (d *DB) Close() error { return d.sql.Close() }

// Do runs f in a transaction. If f returns an error, Do rolls back the transaction.
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

// Exec runs statements in a single transaction.
func (d *DB) Exec(text string, args ...any) error {
	return d.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec(text, args...)
		return err
	})
}

// Read runs f, which must not change the database.
func (d *DB) Read(f func(*sql.DB) error) error { return d.explain(f(d.sql)) }

// List returns the rows of a query, each converted by row. It must be called inside Do or Read, which add the
// database's name and the remedy to the error.
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
