package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

// What a file may be instead of a database of a kind.
var (
	ErrDamaged = errors.New("its contents are damaged")
	ErrForeign = errors.New("it is another program's")
	ErrNewer   = errors.New("it was written by a newer release")
)

// remedies say what to do about the errors of SQLite that somebody can do something about.
var remedies = map[sqlite3.ErrNo]string{
	sqlite3.ErrReadonly: "make the file and its file system writable",
	sqlite3.ErrPerm:     "make the file and its file system writable",
	sqlite3.ErrCantOpen: "see that its folder is there and writable, and that the file is a file",
	sqlite3.ErrIoErr:    "see what the kernel says about the disk with `dmesg`",
}

// Explain names the database at path and adds what to do. A full disk is a syscall.ENOSPC.
func (k Kind) Explain(path string, err error) error {
	var e sqlite3.Error
	var said *explained
	switch {
	case err == nil, errors.As(err, &said):
		return err
	case errors.Is(err, ErrDamaged):
		return k.say(path, err, k.Damaged)
	case errors.Is(err, ErrForeign):
		return k.say(path, err, k.Foreign)
	case !errors.As(err, &e):
		return k.say(path, err, "")
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return k.say(path, ErrDamaged, k.Damaged)
	case e.Code == sqlite3.ErrFull, e.SystemErrno == syscall.ENOSPC:
		return k.say(path, syscall.ENOSPC, "make room in "+filepath.Dir(path))
	case e.Code == sqlite3.ErrBusy, e.Code == sqlite3.ErrLocked:
		if k.Busy != nil {
			err = k.Busy(err.Error())
		}
		return k.say(path, err, "another process holds it: `fuser "+path+"`")
	}
	return k.say(path, err, remedies[e.Code])
}

// ExplainFile is Explain for what the file system says of the file itself.
func (k Kind) ExplainFile(path string, err error) error {
	var file *os.PathError
	switch {
	case errors.Is(err, syscall.EROFS):
		return k.say(path, syscall.EROFS, remedies[sqlite3.ErrReadonly])
	case errors.As(err, &file):
		return k.say(
			path,
			file.Err,
			fmt.Sprintf(
				"see that its folder is there and writable, and that the file is a file (the %s is root's)",
				k.Name,
			),
		)
	}
	return k.Explain(path, err)
}

func (d *DB) explain(err error) error { return d.kind.Explain(d.path, err) }

// explained is an error that needs no more words.
type explained struct {
	text string
	err  error
}

func (k Kind) say(path string, err error, remedy string) error {
	text := fmt.Sprintf("%s %s: %v", k.Name, path, err)
	if remedy != "" {
		text += "; " + remedy
	}
	return &explained{text, err}
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }
