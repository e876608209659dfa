package ledger

import (
	"fmt"
	"os"
	"path/filepath"

	"caelum/internal/node/api"
	"caelum/internal/sqlite"
)

// schema holds the SQL statements of each version of the ledger's schema. PRAGMA user_version is the number of
// applied versions.
var schema = []string{`
CREATE TABLE meta     (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE instance (gpu TEXT NOT NULL, gi INTEGER NOT NULL, profile TEXT NOT NULL, start INTEGER NOT NULL,
                       size INTEGER NOT NULL, uuid TEXT NOT NULL, job INTEGER NOT NULL DEFAULT 0,
                       stuck INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (gpu, gi));
CREATE TABLE lease    (job INTEGER PRIMARY KEY, restart INTEGER NOT NULL, lease TEXT NOT NULL);
CREATE TABLE intent   (id INTEGER PRIMARY KEY, op TEXT NOT NULL, gpu TEXT NOT NULL, gi INTEGER NOT NULL,
                       profile TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL, job INTEGER NOT NULL,
                       at INTEGER NOT NULL DEFAULT (unixepoch()));
`, `
CREATE TABLE former   (gpu TEXT NOT NULL, gi INTEGER NOT NULL, uid INTEGER NOT NULL, PRIMARY KEY (gpu, gi));
`}

// kind describes the ledger's database. A connection waits up to 5 seconds for a lock. If it does not obtain the lock,
// the call fails with status 503, and the prolog or epilog repeats it.
var kind = sqlite.Kind{
	Name:    "ledger",
	Schema:  schema,
	Tables:  []string{"meta", "instance", "lease", "intent"},
	Options: "_busy_timeout=5000",
	Damaged: "move the file away together with its -wal and -shm files, and start caelumd again; " +
		"caelumd restores the leases of running jobs from their lease files",
	Foreign: "set state_dir to a directory that only Caelum uses, or move the file away",
	Busy:    func(text string) error { return api.NotNow(text) },
}

// Open opens or creates the ledger at path. If the directory does not exist, it is created with mode 0700. If the
// file is damaged, belongs to another program, or was written by a newer release, Open returns an error and does not
// change it.
func Open(path string) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("couldn't create the ledger's directory: %w", err)
	}
	// A crash of the machine can lose the ledger's last transactions (see package sqlite). This is harmless, because
	// GPU instances do not survive the crash either.
	db, err := sqlite.Open(path, kind)
	if err != nil {
		return nil, err
	}
	return &Ledger{db}, nil
}

// Supports returns the schema version that this release creates.
func Supports() int { return kind.Supports() }

// VersionAt returns the schema version of the ledger at path, or 0 if there is no ledger. It does not change the file.
func VersionAt(path string) (int, error) { return kind.VersionAt(path) }
