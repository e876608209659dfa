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

// Path resolves the symbolic links in path and checks the resulting file and every directory above it. The file and
// each directory must belong to root or one of owners and must not be writable by the group or others. The caller must
// use the resolved path returned by Path, because other users may be able to change the links in the original path at
// any time.
//
// Path rejects a directory that is writable by other users, unless it has the sticky bit (like /tmp) and belongs to
// root or one of owners, and the next component is a directory that also belongs to root or one of owners. The kernel
// does not allow other users to remove or rename such a component, and directories cannot be hard-linked. Files
// directly in /tmp are therefore rejected.
//
// If an access control list grants write access to other users, the file mode shows write access for the group, so such
// files are rejected as well.
//
// The error contains the unacceptable component and a command that fixes the problem. If the file does not exist, the
// error wraps fs.ErrNotExist.
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
	shared := "" // the previous component, if it is a sticky directory that is writable by other users
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

// components returns path and all directories above it, beginning with the root directory.
func components(path string) []string {
	list := []string{path}
	for path != "/" {
		path = filepath.Dir(path)
		list = append(list, path)
	}
	slices.Reverse(list)
	return list
}

// check checks one component of a path. It returns the component if it is a sticky directory that is writable by other
// users, and an empty string otherwise. shared is the result for the parent directory. last is true for the last
// component, which is the file.
func check(component string, info os.FileInfo, shared string, last bool, owners []int) (string, error) {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	mode := info.Mode()
	switch {
	case mode.Type() == os.ModeSymlink:
		return "", fmt.Errorf("%s became a symbolic link during the check; try again", component)
	case owner != 0 && !slices.Contains(owners, owner):
		return "", fmt.Errorf(
			"%s belongs to %s, not to %s; chown root %s",
			component, name(owner), anyOf(owners), component,
		)
	case shared != "" && !mode.IsDir():
		return "", fmt.Errorf(
			"the file is in %s, where every user may create files; move the file into a directory that belongs to %s",
			shared, anyOf(owners),
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

// anyOf returns the names of the accepted owners, which are root and owners.
func anyOf(owners []int) string {
	names := []string{"root"}
	for _, id := range owners {
		if id != 0 {
			names = append(names, name(id))
		}
	}
	return strings.Join(names, " or ")
}

// name returns a user's name, or "uid N" if the user has no name.
func name(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", id)
}

// Directory checks the directory of path in the same way as Path, for a process that is about to create or rename a
// file there. A user who can modify the directory could use a symbolic link to redirect a write by root. It always
// succeeds if the process is not running as root or the directory does not exist.
func Directory(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir := filepath.Dir(path)
	_, err := Path(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // the caller creates the missing directory or fails
	}
	if info, errStat := os.Stat(dir); errStat == nil {
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != 0 {
			return fmt.Errorf(
				"couldn't use %s as root: its directory belongs to %s; "+
					"run this command as that user (runuser -u %[2]s -- COMMAND)",
				path, name(owner),
			)
		}
	}
	return err
}
