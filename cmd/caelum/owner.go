package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// becomeOwner makes a process of root continue as the owner of the directory of the file at path, so that root's
// commands can change what belongs to SlurmUser: as root, they would follow links that SlurmUser could plant there. It
// changes nothing if the caller is not root, or if root owns the directory.
func becomeOwner(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil // opening the file returns a better error
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid == 0 {
		return nil
	}
	err = errors.Join(
		syscall.Setgroups([]int{int(owner.Gid)}), syscall.Setgid(int(owner.Gid)), syscall.Setuid(int(owner.Uid)))
	if err != nil {
		return fmt.Errorf("couldn't become the owner of %s (user ID %d): %w", filepath.Dir(path), owner.Uid, err)
	}
	return nil
}
