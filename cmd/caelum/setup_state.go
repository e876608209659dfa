package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"caelum/internal/cli/setup"
	"caelum/internal/trust"
)

// conversions holds the conversions of this site, oldest first, with copies of the files that setup has changed. Only
// the last one can be incomplete.
type conversions struct {
	path string
	all  []setup.Conversion
}

// openConversions reads the file at path, which need not exist. No other process can open the conversions until the
// returned lock is closed.
func openConversions(path, lock string) (c *conversions, locked *os.File, err error) {
	locked, err = os.OpenFile(lock, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if syscall.Flock(int(locked.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		locked.Close()
		return nil, nil, errors.New("another caelum setup is running; wait for it, or end it")
	}
	c = &conversions{path: path}
	resolved, err := trust.Path(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, locked, nil
	}
	text, errRead := current(resolved)
	if err = errors.Join(err, errRead); err == nil {
		err = json.Unmarshal(text, &c.all)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("couldn't read the conversions in %s: %w", path, err), locked.Close())
	}
	return c, locked, nil
}

// last returns the last conversion, or nil.
func (c *conversions) last() *setup.Conversion {
	if len(c.all) == 0 {
		return nil
	}
	return &c.all[len(c.all)-1]
}

// save writes the file. Without conversions, it removes the file.
func (c *conversions) save() error {
	if len(c.all) == 0 {
		return os.Remove(c.path)
	}
	text, err := json.Marshal(c.all)
	if err != nil {
		return err
	}
	return replaceFile(c.path, text, setup.Saved{Mode: 0o600})
}

// replaceFile writes a file through a new file in the same directory, so that the file is never incomplete.
func replaceFile(path string, text []byte, like setup.Saved) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	f, errTemp := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err = errors.Join(err, errTemp); err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chown(like.UID, like.GID), f.Chmod(os.FileMode(like.Mode)), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// saved returns the files that a patch changes, with their owners and modes. A new file belongs to root.
func saved(files []setup.File) (all []setup.Saved, err error) {
	for _, f := range files {
		s := setup.Saved{File: f, Mode: 0o644}
		if sameContent(f.Old, f.New) {
			continue
		}
		if f.Old != nil {
			info, err := os.Stat(f.Path)
			if err != nil {
				return nil, err
			}
			owner := info.Sys().(*syscall.Stat_t)
			s.Mode, s.UID, s.GID = uint32(info.Mode().Perm()), int(owner.Uid), int(owner.Gid)
		}
		all = append(all, s)
	}
	return all, nil
}

// current returns the content of a file, or nil if it does not exist.
func current(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func sameContent(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// pending reports whether a file has the content before the changes. Other content is an error, unless the file already
// has the content after them.
func pending(f setup.Saved) (bool, error) {
	text, err := current(f.Path)
	if err == nil && !sameContent(text, f.Old) && !sameContent(text, f.New) {
		err = fmt.Errorf("%s has changed since the conversion began; run `caelum setup --undo`, then begin again",
			f.Path)
	}
	return !sameContent(text, f.New), err
}

// restoreFile restores a file, or removes a new file. If the file has other changes, it returns the patch that the
// administrator must apply, and remembers the content: a file that differs from it later has been corrected by hand.
func restoreFile(f *setup.Saved) (patch []byte, err error) {
	text, err := current(f.Path)
	switch {
	case err != nil, sameContent(text, f.Old), f.Told != nil && !bytes.Equal(text, f.Told):
		return nil, err
	case !sameContent(text, f.New):
		f.Told = text
		return setup.Inverse([]setup.File{f.File}), nil
	case f.Old != nil:
		return nil, replaceFile(f.Path, f.Old, *f)
	}
	target, err := filepath.EvalSymlinks(f.Path) // caelum-watch replaces the decision table by a link
	if err == nil && target != f.Path {
		err = os.Remove(target)
	}
	return nil, errors.Join(err, os.Remove(f.Path))
}
