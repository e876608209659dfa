// Package trust decides whether a file that root reads or loads may be used: that nobody but root, and the users
// named, can change it.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Path resolves the symbolic links of path, and checks what it leads to and every directory above that. Each must be
// owned by root or one of owners, and not be writable by group or others. It returns the resolved path: use that one,
// since links of path itself may be changed by others at any time.
//
// A directory that others may write to is accepted for one case: it has the sticky bit (/tmp), it is owned by root or
// one of owners, and the next component is a directory that is so owned. The kernel lets no other user remove or
// rename such a directory, and directories cannot be hard links. A file directly in /tmp is refused.
//
// An access control list that gives others write access shows as the group's, so it is refused too.
//
// The error names the component at fault and the command that corrects it. For a file that does not exist it is an
// fs.ErrNotExist.
func Path(path string, owners ...int) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", refuse(path, err.Error())
	}
	resolved, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		var in *fs.PathError
		if errors.As(err, &in) {
			err = in.Err
		}
		return "", fmt.Errorf("couldn't use %s: %w", path, err)
	}
	shared := "" // the component above, if it is a sticky directory that others may write to
	for _, component := range components(resolved) {
		info, err := os.Lstat(component)
		if err != nil {
			return "", refuse(path, err.Error())
		}
		if shared, err = check(component, info, shared, component == resolved, owners); err != nil {
			return "", refuse(path, err.Error())
		}
	}
	return resolved, nil
}

// components returns path and all directories above it, the root directory first.
func components(path string) []string {
	list := []string{path}
	for path != "/" {
		path = filepath.Dir(path)
		list = append(list, path)
	}
	slices.Reverse(list)
	return list
}

// check judges one component, and returns it if it is a sticky directory that others may write to.
func check(component string, info os.FileInfo, shared string, last bool, owners []int) (string, error) {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	mode := info.Mode()
	switch {
	case mode.Type() == os.ModeSymlink:
		return "", fmt.Errorf("%s has just become a symbolic link; try again", component)
	case owner != 0 && !slices.Contains(owners, owner):
		return "", fmt.Errorf(
			"%s belongs to %s, not to %s; chown root %s",
			component,
			name(owner),
			anyOf(owners),
			component,
		)
	case shared != "" && !mode.IsDir():
		return "", fmt.Errorf(
			"it is in %s, where every user may make files; move it into a directory of %s",
			shared,
			anyOf(owners),
		)
	case mode.Perm()&0o022 == 0:
		return "", nil
	case mode.IsDir() && mode&os.ModeSticky != 0 && !last:
		return component, nil
	}
	by, bits := "group", "g-w"
	if mode.Perm()&0o002 != 0 {
		by, bits = "others", "o-w"
		if mode.Perm()&0o020 != 0 {
			by, bits = "group and others", "go-w"
		}
	}
	return "", fmt.Errorf("%s is writable by %s; chmod %s %s", component, by, bits, component)
}

func refuse(path, reason string) error {
	return fmt.Errorf("couldn't use %s: %s", path, reason)
}

// anyOf names the owners that are accepted.
func anyOf(owners []int) string {
	names := []string{"root"}
	for _, id := range owners {
		if id != 0 {
			names = append(names, name(id))
		}
	}
	return strings.Join(names, " or ")
}

// name is a user's name, or "uid N" without one.
func name(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", id)
}

// Directory is Path for a process that is about to make or rename a file in the directory of path. In a directory of
// another user that user could put a link in the way of root's write. For processes of other users than root there is
// nothing to protect: it then always succeeds.
func Directory(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir := filepath.Dir(path)
	_, err := Path(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // what does not exist has no owner yet, and is made by the caller or refused
	}
	if info, errStat := os.Stat(dir); errStat == nil {
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != 0 {
			return fmt.Errorf(
				"couldn't use %s as root: its directory belongs to %s; run this command as that user (runuser -u %[2]s -- COMMAND)",
				path,
				name(owner),
			)
		}
	}
	return err
}
