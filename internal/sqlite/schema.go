package sqlite

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
)

// Supports returns the schema version that this release creates in databases of kind k.
func (k Kind) Supports() int { return len(k.Schema) }

// VersionAt returns the schema version of the database at path, or 0 if the file does not exist. It does not change the
// file, and it can be called while another process has the database open. The version may be newer than the one that
// this release supports.
func (k Kind) VersionAt(path string) (version int, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	options := "?mode=ro&_busy_timeout=5000"
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		// No process has the database open. Without the immutable option, SQLite would leave -wal and -shm files
		// behind.
		options = "?immutable=1"
	}
	// In WAL mode, the header of the file may contain an old version if the new one is still in the -wal file.
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath()+options)
	if err != nil {
		return 0, k.ExplainFile(path, err)
	}
	defer db.Close()
	err = db.QueryRow("PRAGMA user_version").Scan(&version)
	return version, k.ExplainFile(path, err)
}
