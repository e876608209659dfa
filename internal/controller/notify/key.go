package notify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"caelum/internal/trust"
)

// Key is a site's secret, shared by slurmctld's host and all GPU nodes.
type Key []byte

// These constants limit the length of a key file, in bytes.
const (
	minKey = 32
	maxKey = 4096
)

// readKey reads the key file at path. It must be a regular file that belongs to one of the owners and is inaccessible
// to group and others, in a directory that only root and the owners can change. The error includes a remedy.
func readKey(path string, owners ...uint32) (Key, error) {
	file, err := Locate(path, owners...)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the wake key: %w; %s", err, remedy(err, path))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("couldn't read the wake key: %w", err)
	}
	if err := CheckKey(path, info, owners...); err != nil {
		return nil, err
	}
	key, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("couldn't read the wake key: %w", err)
	case len(key) < minKey || len(key) > maxKey:
		return nil, fmt.Errorf(
			"couldn't use the wake key %s: the length of the file must be %d to %d bytes; %s",
			path, minKey, maxKey, remedy(fs.ErrNotExist, path),
		)
	}
	return key, nil
}

// Locate checks the parent directories of a key file and returns the file's path without symbolic links to directories.
// A user who can change one of these directories could replace a new key with an old one.
func Locate(path string, owners ...uint32) (string, error) {
	var also []int
	for _, uid := range owners {
		also = append(also, int(uid))
	}
	dir, err := trust.Path(filepath.Dir(path), also...)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("couldn't read the wake key: %w; %s", err, remedy(err, path))
	}
	if err != nil {
		return "", fmt.Errorf("couldn't use the wake key %s: %w", path, err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// CheckKey returns an error with a remedy if a key file has the wrong type, owner or mode.
func CheckKey(path string, info fs.FileInfo, owners ...uint32) error {
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf(
			"couldn't use the wake key %s: the path is not a regular file; %s",
			path, remedy(fs.ErrNotExist, path),
		)
	case !slices.Contains(owners, owner):
		return fmt.Errorf("couldn't use the wake key %s: the file belongs to user %d; run `chown %d %s`, "+
			"and if other users may have read the key, create a new one", path, owner, owners[0], path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("couldn't use the wake key %s: the file has mode %04o; run `chmod 400 %s`, "+
			"and if other users may have read the key, create a new one", path, info.Mode().Perm(), path)
	}
	return nil
}

func remedy(err error, path string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "make the file readable only by this daemon's user (mode 0400)"
	}
	return fmt.Sprintf("create the file with `(umask 077; head -c 32 /dev/urandom >%s)`, "+
		"and copy the file to slurmctld's host and every GPU node", path)
}
