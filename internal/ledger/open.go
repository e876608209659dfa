package ledger

import (
	"fmt"
	"os"
	"path/filepath"

	"caelum/internal/api"
	"caelum/internal/sqlite"
)

// schema is one statement list per version; user_version counts how many have been applied.
var schema = []string{`
CREATE TABLE meta     (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE instance (gpu TEXT NOT NULL, gi INTEGER NOT NULL, profile TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
                       uuid TEXT NOT NULL, job INTEGER NOT NULL DEFAULT 0, stuck INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (gpu, gi));
CREATE TABLE lease    (job INTEGER PRIMARY KEY, restart INTEGER NOT NULL, lease TEXT NOT NULL);
CREATE TABLE intent   (id INTEGER PRIMARY KEY, op TEXT NOT NULL, gpu TEXT NOT NULL, gi INTEGER NOT NULL, profile TEXT NOT NULL,
                       start INTEGER NOT NULL, size INTEGER NOT NULL, job INTEGER NOT NULL, at INTEGER NOT NULL DEFAULT (unixepoch()));
`, `
CREATE TABLE former   (gpu TEXT NOT NULL, gi INTEGER NOT NULL, uid INTEGER NOT NULL, PRIMARY KEY (gpu, gi));
`}

// kind is what a ledger is. A lock that another process keeps may pass, as a full disk may: whoever asked shall ask
// again.
var kind = sqlite.Kind{
	Name: "ledger", Schema: schema, Tables: []string{"meta", "instance", "lease", "intent"}, Options: "_busy_timeout=5000",
	Damaged: "move it away with its -wal and -shm and start caelumd again: the leases of running jobs are then taken from their lease files",
	Foreign: "set state_dir to a folder of Caelum's own, or move the file away",
	Busy:    func(text string) error { return api.NotNow(text) },
}

// Open opens or makes the ledger at path; its directory is made root-only if it does not exist. A file that is damaged,
// another program's or a newer release's is refused and left as it is.
func Open(path string) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make the ledger's directory: %w", err)
	}
	// What a crash of the machine takes from the ledger, its last transactions, it takes from the GPUs too: no instance
	// outlives it.
	db, err := sqlite.Open(path, kind)
	if err != nil {
		return nil, err
	}
	return &Ledger{db}, nil
}
