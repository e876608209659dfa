package ledger

import (
	"bytes"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/node/api"
)

// made creates a ledger with 40 leases, closes it, and returns its path.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l := open(t, path)
	for job := range uint32(40) {
		if err := l.Grant(api.Lease{Job: job + 1, Name: strings.Repeat("n", 300)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func edit(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err == nil {
		_, err = db.Exec(statement)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRefused checks that Open rejects files that are not complete ledgers and does not change them. The error must
// name the path and a remedy.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(path string)
		want   string
	}{
		{"half of the file", func(p string) { os.Truncate(p, 3*4096) }, kind.Damaged},
		{"a header", func(p string) { os.Truncate(p, 100) }, kind.Damaged},
		{"garbage", func(p string) {
			os.WriteFile(p, bytes.Repeat([]byte("not a database "), 1000), 0o600)
		}, kind.Damaged},
		{"a page of garbage", func(p string) {
			f, _ := os.OpenFile(p, os.O_WRONLY, 0)
			f.WriteAt(bytes.Repeat([]byte{0xff}, 4096), 4*4096)
			f.Close()
		}, kind.Damaged},
		{"the ledger of a newer release", func(p string) {
			edit(t, p, "PRAGMA user_version = 99")
		}, "install the newer release again"},
		{"another program's database", func(p string) {
			os.Remove(p)
			edit(t, p, "CREATE TABLE contacts (name TEXT)")
		}, "another program's"},
		{"another program's database with a version", func(p string) {
			os.Remove(p)
			edit(t, p, "CREATE TABLE lease (tenant TEXT); PRAGMA user_version = 1")
		}, "another program's"},
		{"a directory", func(p string) { os.Remove(p); os.Mkdir(p, 0o700) }, "check that the parent directory exists"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := made(t)
			c.damage(path)
			before, _ := os.ReadFile(path)
			_, err := Open(path)
			if err == nil || !strings.HasPrefix(err.Error(), "ledger "+path+": ") ||
				!strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			// In another program's database, only the journal mode (bytes 18 and 19) may change.
			if after, _ := os.ReadFile(path); len(before) > 100 && !bytes.Equal(before[100:4096], after[100:4096]) ||
				len(before) != len(after) {
				t.Error("Open changed the file")
			}
		})
	}
}

// TestDamagedLease checks a ledger in which one lease is damaged in a way that SQLite does not detect.
func TestDamagedLease(t *testing.T) {
	path := made(t)
	edit(t, path, "UPDATE lease SET lease = '{' WHERE job = 7")
	if _, err := open(t, path).Leases(); err == nil || !strings.Contains(err.Error(), kind.Damaged) {
		t.Errorf("%v", err)
	}
}

// TestDamagedJournal checks that SQLite ignores a -wal file that is not a journal, and that the leases in the database
// remain.
func TestDamagedJournal(t *testing.T) {
	path := made(t)
	if err := os.WriteFile(path+"-wal", bytes.Repeat([]byte("garbage "), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if leases, err := open(t, path).Leases(); err != nil || len(leases) != 40 {
		t.Errorf("%d leases, %v", len(leases), err)
	}
}

// mounted mounts a tmpfs with the given options and returns its directory.
func mounted(t *testing.T, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := mounted(t, "size=256k")
	path := filepath.Join(dir, "ledger.db")
	l := open(t, path)
	if err := errors.Join(l.SetMeta("slots", "7"), l.Grant(api.Lease{Job: 1}, nil)); err != nil {
		t.Fatal(err)
	}
	// SQLite's files may have free pages, which suffice for a few small writes.
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 256<<10), 0o600)
	var err error
	last := uint32(1)
	for err == nil && last < 1000 {
		last++
		err = l.Grant(api.Lease{Job: last, Name: strings.Repeat("n", 3000)}, nil)
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room in "+dir) {
		t.Fatalf("after %d leases: %v", last, err)
	}
	if err := l.SetMeta("slots", "7"); err != nil {
		t.Errorf("SetMeta of a value that is already stored: %v", err)
	}
	leases, err := l.Leases()
	if err != nil || len(leases) != int(last)-1 {
		t.Errorf("%d leases, want %d, %v", len(leases), last-1, err)
	}
	l.Close()
	l = open(t, path)
	if again, err := l.Leases(); err != nil || len(again) != len(leases) {
		t.Errorf("after reopening: %d leases, %v", len(again), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := l.Grant(api.Lease{Job: last}, nil); err != nil {
		t.Errorf("after the filler was removed: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := mounted(t, "size=1m")
	path := filepath.Join(dir, "ledger.db")
	l := open(t, path)
	l.Close()
	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "writable") {
		t.Errorf("%v", err)
	}
}

// TestLocked checks that a lock held by another process causes an error with status 503, so that the caller repeats the
// call.
func TestLocked(t *testing.T) {
	path := made(t)
	other := open(t, path)
	l := open(t, path)
	if err := l.db.Read(func(q *sql.DB) error {
		_, err := q.Exec("PRAGMA busy_timeout = 1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	if err := other.db.Do(func(*sql.Tx) error {
		err = l.Release(1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var later *api.Error
	if !errors.As(err, &later) || later.Code != http.StatusServiceUnavailable ||
		!strings.Contains(err.Error(), "fuser "+path) {
		t.Errorf("%v", err)
	}
	if err := l.Release(1); err != nil {
		t.Errorf("after the lock was released: %v", err)
	}
}
