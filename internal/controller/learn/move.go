package learn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"caelum/internal/trust"
)

// MoveTable moves the decision table at path into dir, gives it to dir's owner, and leaves a link. It returns the new
// path. It changes nothing and returns "" if there is no table, if it is not a regular file, or if root owns dir, whose
// processes can write the table anyway. The caller must be root. A table that is already in dir is kept as
// decisions.old. Before the move, MoveTable calls accept with the user ID of dir's owner: slurmctld must be able to
// read the table as this user.
//
// job_submit.lua can read the table at any time: path is replaced by rename(2).
func MoveTable(path, dir string, accept func(owner uint32) error) (to string, err error) {
	defer func() {
		if err != nil {
			to, err = "", fmt.Errorf("couldn't move %s to %s: %w", path, dir, err)
		}
	}()
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return "", nil
	} else if err != nil {
		return "", err
	}
	if err := trust.Directory(path); err != nil {
		return "", err
	}
	folder, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	owner := folder.Sys().(*syscall.Stat_t)
	if owner.Uid == 0 {
		return "", nil
	}
	if err := accept(owner.Uid); err != nil {
		return "", err
	}
	text, _, err := readText(path)
	if err != nil {
		return "", err
	}
	to = filepath.Join(dir, "decisions")
	// dir belongs to another user: writeNew follows no link, and a rename replaces one.
	made, err := writeNew(dir, text, info.Mode().Perm(), owner)
	if err != nil {
		return "", err
	}
	defer os.Remove(made) // no effect if the file was renamed
	if err := os.Rename(to, to+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Rename(made, to); err != nil {
		return "", err
	}
	link := path + ".link"
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(to, link); err != nil {
		return "", err
	}
	return to, os.Rename(link, path)
}
