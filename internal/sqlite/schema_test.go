package sqlite

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestVersionAt checks the version of a database that a newer release has migrated and still has open, so that the
// main file does not show the new version yet.
func TestVersionAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	old := Kind{Name: "ledger", Schema: []string{"CREATE TABLE a (x)"}, Tables: []string{"a"}}
	if v, err := old.VersionAt(path); v != 0 || err != nil {
		t.Errorf("no file: version %d, %v", v, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("VersionAt created the file")
	}
	d, err := Open(path, old)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if v, err := old.VersionAt(path); v != 1 || err != nil {
		t.Errorf("version %d, %v; want 1", v, err)
	}
	if files, err := filepath.Glob(path + "*"); len(files) != 1 {
		t.Errorf("VersionAt left %q (%v)", files, err)
	}
	newer := old
	newer.Schema = append(newer.Schema, "CREATE TABLE b (x)")
	if d, err = Open(path, newer); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if before[63] != 1 {
		t.Fatalf("the main file already has version %d, so the test does not check the -wal file", before[63])
	}
	if v, err := old.VersionAt(path); v != 2 || err != nil || v <= old.Supports() {
		t.Errorf("version %d, %v; want 2", v, err)
	}
	if err := d.Read(func(db *sql.DB) error { return db.Ping() }); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("VersionAt changed the file (%v)", err)
	}
}

func TestVersionAtDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Kind{Name: "ledger"}).VersionAt(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want %v", err, ErrDamaged)
	}
}
