package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

// If Open rejects a file, it returns ErrDamaged, ErrForeign or ErrNewer.
var (
	ErrDamaged = errors.New("the contents of the file are damaged")
	ErrForeign = errors.New("the file is another program's database")
	ErrNewer   = errors.New("the file was written by a newer release")
)

// remedies lists the remedies for SQLite errors that an administrator can correct.
var remedies = map[sqlite3.ErrNo]string{
	sqlite3.ErrReadonly: "make the file and its file system writable",
	sqlite3.ErrPerm:     "make the file and its file system writable",
	sqlite3.ErrCantOpen: "check that the parent directory exists and is writable, and that the file is a regular file",
	sqlite3.ErrIoErr:    "check the kernel's messages about the disk with `dmesg`",
}

// Explain returns err with the database's name and path and a remedy. It does not change an error that already contains
// the database's name. If the disk is full, the result wraps syscall.ENOSPC.
func (k Kind) Explain(path string, err error) error {
	var e sqlite3.Error
	var done *explained
	switch {
	case err == nil, errors.As(err, &done):
		return err
	case errors.Is(err, ErrDamaged):
		return k.withRemedy(path, err, k.Damaged)
	case errors.Is(err, ErrForeign):
		return k.withRemedy(path, err, k.Foreign)
	case !errors.As(err, &e):
		return k.withRemedy(path, err, "")
	case e.Code == sqlite3.ErrCorrupt && unreadable(path):
		return k.withRemedy(path, syscall.EIO, remedies[sqlite3.ErrIoErr])
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return k.withRemedy(path, ErrDamaged, k.Damaged)
	case e.Code == sqlite3.ErrFull, e.SystemErrno == syscall.ENOSPC:
		return k.withRemedy(path, syscall.ENOSPC, "make room in "+filepath.Dir(path))
	case e.Code == sqlite3.ErrBusy, e.Code == sqlite3.ErrLocked:
		if k.Busy != nil {
			err = k.Busy(err.Error())
		}
		return k.withRemedy(path, err, "another process has locked the file; find the process with `fuser "+path+"`")
	}
	return k.withRemedy(path, err, remedies[e.Code])
}

// unreadable reports whether the disk returns EIO for a part of the database. If a read fails with EIO, SQLite reports
// that the database is damaged (SQLITE_IOERR_CORRUPTFS). Moving the file away would not help then, and a repository
// would be set aside without need.
func unreadable(path string) bool {
	for _, name := range []string{path, path + "-wal"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if errors.Is(err, syscall.EIO) {
			return true
		}
	}
	return false
}

// ExplainFile is like Explain, but for file-system errors that occurred while opening or examining the file.
func (k Kind) ExplainFile(path string, err error) error {
	var file *os.PathError
	switch {
	case errors.Is(err, syscall.EROFS):
		return k.withRemedy(path, syscall.EROFS, remedies[sqlite3.ErrReadonly])
	case errors.As(err, &file):
		remedy := remedies[sqlite3.ErrCantOpen]
		if errors.Is(file, os.ErrPermission) {
			remedy += fmt.Sprintf(" (only root and the owner of the %s can open the file)", k.Name)
		}
		return k.withRemedy(path, file.Err, remedy)
	}
	return k.Explain(path, err)
}

func (d *DB) explain(err error) error { return d.kind.Explain(d.path, err) }

// explained is an error that already contains the database's name and the remedy.
type explained struct {
	text string
	err  error
}

// withRemedy returns err with the database's name and path and, if remedy is not empty, the remedy.
func (k Kind) withRemedy(path string, err error, remedy string) error {
	text := fmt.Sprintf("%s %s: %v", k.Name, path, err)
	if remedy != "" {
		text += "; " + remedy
	}
	return &explained{text, err}
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }
