package repo

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/core/predict"
	"caelum/internal/sqlite"
)

func quiet(string) {}

// testDir is the directory for property tests, because rapid.T provides no temporary directory.
var testDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caelum-repo")
	if err != nil {
		panic(err)
	}
	testDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func mustOpen(t *rapid.T, path string) *Repo {
	r, err := Open(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// damages lists functions that replace a repository with an invalid file.
var damages = map[string]func(t *testing.T, path string){
	"text": func(t *testing.T, path string) {
		write(t, path, []byte(strings.Repeat("not a database\n", 1000)))
	},
	"a few bytes":   func(t *testing.T, path string) { write(t, path, []byte("x")) },
	"a broken page": func(t *testing.T, path string) { spoil(t, path, 4096, 6*4096) },
	"a broken head": func(t *testing.T, path string) { spoil(t, path, 0, 50) },
	"cut in half":   func(t *testing.T, path string) { cut(t, path) },
	"another program's": func(t *testing.T, path string) {
		os.Remove(path)
		edit(t, path, "CREATE TABLE secrets (a); INSERT INTO secrets VALUES (1)")
	},
	"incomplete": func(t *testing.T, path string) {
		edit(t, path, "PRAGMA foreign_keys=off; DROP TABLE outbox; DROP TABLE run")
	},
	"version, empty": func(t *testing.T, path string) { os.Remove(path); edit(t, path, "PRAGMA user_version = 1") },
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func spoil(t *testing.T, path string, at, n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || len(data) < at+n {
		t.Fatal(err, len(data))
	}
	for i := range n {
		data[at+i] = 0xa5
	}
	write(t, path, data)
}

func cut(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, data[:len(data)/2])
}

func edit(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

// whole creates a repository with runs and returns its path. No process has this repository open.
func whole(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "repo.db")
	r, err := Open(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		n := aRun()
		n.Job = uint32(7 + i)
		add1(t, r, n)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSetAside checks files that are not repositories. Open must rename the file without changing its bytes, create a
// new repository and report the file's new name. OpenAsItIs must not change the file.
func TestSetAside(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := whole(t)
			damage(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := OpenAsItIs(path); err == nil ||
				!errors.Is(err, sqlite.ErrDamaged) && !errors.Is(err, sqlite.ErrForeign) {
				t.Fatalf("OpenAsItIs: %v, error %v", r, err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
				t.Fatalf("OpenAsItIs changed the file: %v", err)
			}
			reported := ""
			r, err := Open(path, func(text string) { reported += text })
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			aside, err := filepath.Glob(path + ".damaged-????????T??????.???")
			if err != nil || len(aside) != 1 || !strings.Contains(reported, aside[0]) ||
				!strings.Contains(reported, "caelum repo sync") {
				t.Fatalf("%v %q %v", aside, reported, err)
			}
			if now, err := os.ReadFile(aside[0]); err != nil || string(now) != string(before) {
				t.Errorf("the file that was set aside has changed: %v", err)
			}
			if len(job(t, r, 7)) != 0 || add1(t, r, aRun()) != 1 {
				t.Error("the new repository contains an old run")
			}
			if r := open(t, path); len(job(t, r, 7)) != 1 {
				t.Error("after reopening: the new run is missing")
			}
		})
	}
}

// TestDamagedInUse checks a process that has a repository open when it is damaged, replaced or removed. From then on,
// the process must use the new file at the path.
func TestDamagedInUse(t *testing.T) {
	replaced := func(t *testing.T, path string) {
		os.Rename(path, path+".old")
		if r, err := Open(path, quiet); err != nil {
			t.Fatal(err)
		} else {
			r.Close()
		}
	}
	for _, c := range []struct {
		what     string
		damage   func(t *testing.T, path string)
		reported bool
	}{
		{"text", damages["text"], true},
		{"cut", func(t *testing.T, path string) {
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"emptied", func(t *testing.T, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"replaced", replaced, false},
		{"removed, with its directory", func(t *testing.T, path string) { os.RemoveAll(filepath.Dir(path)) }, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(whole(t)), "repo.db")
			reported := ""
			r := At(path, func(text string) { reported += text })
			defer r.Close()
			if _, err := r.Scripts(); err != nil {
				t.Fatal(err)
			}
			c.damage(t, path)
			if _, err := r.Scripts(); err != nil {
				t.Errorf("list: %v", err)
			}
			if err := r.Ended(aRun(), time.Unix(1795342816, 0)); err != nil {
				t.Errorf("add: %v", err)
			}
			if reported == "" || c.reported != strings.Contains(reported, "set aside") {
				t.Errorf("reported %q", reported)
			}
			if now := open(t, path); len(job(t, now, 7)) != 1 || len(job(t, now, 8)) != 0 {
				t.Error("the new file does not contain the new run, or contains an old run")
			}
		})
	}
}

// TestAt checks that a repository that could not be opened at first is opened by a later use.
func TestAt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "repo.db")
	write(t, filepath.Dir(path), nil)
	r := At(path, quiet)
	defer r.Close()
	if _, err := r.Add(aRun()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	os.Remove(filepath.Dir(path))
	if n, err := r.Add(aRun()); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}

// TestSetAsideOnce opens a damaged repository several times concurrently. Only one call may set the file aside, and all
// calls must open the same new repository.
func TestSetAsideOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	write(t, path, []byte(strings.Repeat("junk", 5000)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r, err := Open(path, quiet)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			n := aRun()
			n.Job = uint32(i + 1)
			if _, err := r.Add(n); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	aside, _ := filepath.Glob(path + ".damaged-*T??????.???")
	scripts, err := open(t, path).Scripts()
	if err != nil || len(scripts) != 1 || scripts[0].Runs != 8 || len(aside) != 1 {
		t.Errorf("scripts %+v, error %v, files set aside %v", scripts, err, aside)
	}
}

// TestNewer checks that Open rejects a newer release's repository and does not change the file.
func TestNewer(t *testing.T) {
	path := whole(t)
	edit(t, path, "PRAGMA user_version = 99")
	before, _ := os.ReadFile(path)
	if _, err := Open(path, quiet); err == nil || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("%v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("Open changed the file: %v", err)
	}
	if entries, _ := filepath.Glob(path + "*"); len(entries) > 3 {
		t.Errorf("%v", entries)
	}
}

// TestOpenErrors checks that the error for a path that cannot be opened names a remedy, and that Open leaves no files
// behind.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, quiet); err == nil || !strings.Contains(err.Error(), "is a directory") ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/null"} {
		if _, err := Open(path, quiet); err == nil || !strings.Contains(err.Error(), "specify a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	typed := filepath.Join(dir, "none", "repo.db")
	if _, err := OpenAsItIs(typed); err == nil || !strings.Contains(err.Error(), "parent directory exists") ||
		!strings.Contains(err.Error(), typed) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files remain after an error: %v", left)
	}
	open(t, typed)
	if info, err := os.Stat(filepath.Dir(typed)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the new directory: %v %v", info, err)
	}
}

// TestFull checks that the error on a full disk names a remedy, and that existing runs can still be read.
func TestFull(t *testing.T) {
	r := open(t, whole(t))
	if err := r.read(func(q *sql.DB) error {
		_, err := q.Exec("PRAGMA max_page_count = 1") // SQLite raises this limit to the current number of pages
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var runs []predict.Run
	for i := range 5000 {
		n := aRun()
		n.Job = uint32(1000 + i)
		runs = append(runs, n)
	}
	if _, err := r.Add(runs...); !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), "make room in "+filepath.Dir(r.path)) {
		t.Errorf("%v", err)
	}
	if len(job(t, r, 7)) != 1 || len(job(t, r, 1000)) != 0 {
		t.Error("Add stored some of the runs, or existing runs are missing")
	}
}

// TestMode checks that only the owner can read the repository.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a repo?mode=memory&x#y%41.db") // SQLite parses file names as URIs
	r := open(t, path)
	add1(t, r, aRun())
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Fatalf("%v %v", left, err)
	}
	for _, f := range left {
		if info, err := f.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s %v %v", f.Name(), info.Mode(), err)
		}
	}
}

// FuzzOpen checks that Open returns either an error or a usable repository, regardless of the bytes in the file.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("x"))
	f.Add([]byte("SQLite format 3\x00"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "repo.db")
		write(t, path, data)
		r, err := Open(path, quiet)
		if err != nil {
			return
		}
		defer r.Close()
		if _, err := r.Add(predict.Run(aRun())); err != nil {
			t.Fatal(err)
		}
	})
}
