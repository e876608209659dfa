package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The fractions of a GPU have one device file, and jobs of several users can hold them. The file then belongs to root,
// and has a POSIX ACL with one entry for each of these users. They are not its owners, so they cannot change its mode.

// aclName is the extended attribute that contains a file's POSIX ACL.
const aclName = "system.posix_acl_access"

// The version of the attribute's format, the tags of its entries, and the id of an entry for no particular user
// (linux/posix_acl_xattr.h, linux/posix_acl.h).
const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclNoID     = 0xffffffff
)

// Users allows exactly the given users, and root, to open a GPU's device file. If the file is already correct, Users
// changes nothing. Otherwise, at no time does any other user have access because of the change.
func (c Caps) Users(minor int, uids []uint32) error {
	err := c.setUsers(minor, uids)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("couldn't set the users of %s: its file system has no POSIX ACLs (CONFIG_TMPFS_POSIX_ACL); "+
			"use a kernel with them, or remove `fractions` from caelum.yaml", c.DeviceFile(minor))
	case err != nil:
		return fmt.Errorf("couldn't set the users of a GPU's device file: %w", err)
	}
	return nil
}

func (c Caps) setUsers(minor int, uids []uint32) error {
	if len(uids) == 0 {
		return c.ownDevice(minor, 0, fullMode)
	}
	path, want := c.DeviceFile(minor), accessList(uids)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	had := readACL(path)
	if st.Uid == 0 && bytes.Equal(had, want) {
		return nil
	}
	// The kernel replaces an ACL in one step, so users of other fractions keep their access. Without an ACL, the mode
	// may give access to all users, and must be closed first.
	if st.Uid != 0 || had == nil {
		if err := errors.Join(os.Chmod(path, fullMode), os.Lchown(path, 0, 0)); err != nil {
			return err
		}
	}
	if err := unix.Setxattr(path, aclName, want, 0); err != nil {
		return &fs.PathError{Op: "setxattr", Path: path, Err: err}
	}
	return nil
}

// accessList returns the ACL with which only the owner and the given users can read and write a file.
func accessList(uids []uint32) []byte {
	uids = slices.Compact(slices.Sorted(slices.Values(uids)))
	list := binary.LittleEndian.AppendUint32(nil, aclVersion)
	add := func(tag, perm uint16, id uint32) {
		list = binary.LittleEndian.AppendUint16(list, tag)
		list = binary.LittleEndian.AppendUint16(list, perm)
		list = binary.LittleEndian.AppendUint32(list, id)
	}
	const rw = 6
	add(aclUserObj, rw, aclNoID)
	for _, uid := range uids {
		add(aclUser, rw, uid)
	}
	add(aclGroupObj, 0, aclNoID)
	add(aclMask, rw, aclNoID)
	add(aclOther, 0, aclNoID)
	return list
}

// readACL returns a file's ACL, or nil if it has none. If the ACL cannot be read, the result is not nil and equals no
// ACL.
func readACL(path string) []byte {
	list := make([]byte, 4096)
	n, err := unix.Getxattr(path, aclName, list)
	if err == unix.ENODATA || err == unix.EOPNOTSUPP {
		return nil
	}
	return list[:max(n, 0)]
}

// removeACL removes a file's ACL. The file's mode stays the same.
func removeACL(path string) error {
	err := unix.Removexattr(path, aclName)
	if err == nil || err == unix.ENODATA || err == unix.EOPNOTSUPP {
		return nil
	}
	return &fs.PathError{Op: "removexattr", Path: path, Err: err}
}
