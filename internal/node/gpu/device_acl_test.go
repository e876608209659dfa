package gpu_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
)

// opens reports whether a user in the group root can open a file for reading and writing.
func opens(t *testing.T, path string, uid int) bool {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, so no other goroutine gets its user id
		unix.SetfsuidRetUid(uid)
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		result <- err
	}()
	err := <-result
	if err != nil && err != unix.EACCES {
		t.Fatal(err)
	}
	return err == nil
}

// deviceFile creates the device file of GPU 0 with mode 0666, as the driver does, and returns its path. The file is a
// null device, so that root can open it.
func deviceFile(t *testing.T, dir string) (gpu.Caps, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to create a device file and to act as other users")
	}
	caps := gpu.Caps{Dev: dir, Proc: t.TempDir()}
	path := caps.DeviceFile(0)
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(1, 3))),
		os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	return caps, path
}

// aclName is the extended attribute that contains a file's POSIX ACL.
const aclName = "system.posix_acl_access"

// hasACL reports whether a file has a POSIX ACL.
func hasACL(path string) bool {
	_, err := unix.Getxattr(path, aclName, nil)
	return err == nil
}

// TestUsers alternates between fractions and full GPUs on one device file.
func TestUsers(t *testing.T) {
	caps, path := deviceFile(t, t.TempDir())
	full := gpu.Instance{GI: gpu.FullGI, Profile: mig.Full}
	const a, b, c = 20001, 20002, 20003
	users := func(uids ...uint32) func() error { return func() error { return caps.Users(0, uids) } }
	open := func(uid uint32) func() error { return func() error { return caps.Open(0, full, uid) } }
	denies := func() error { // user::rw-, user:a:---, group::rw-, mask::rw-, other::rw-; the mode stays 0666
		return unix.Setxattr(path, aclName, []byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff"+
			"\x02\x00\x00\x00\x21\x4e\x00\x00\x04\x00\x06\x00\xff\xff\xff\xff"+
			"\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x06\x00\xff\xff\xff\xff"), 0)
	}
	steps := []struct {
		do      func() error
		owner   uint32
		acl     bool
		a, b, c bool
	}{
		{users(a), 0, true, true, false, false},
		{users(b, a, b), 0, true, true, true, false},
		{users(b), 0, true, false, true, false},
		{open(c), c, false, false, false, true},
		{users(a, c), 0, true, true, false, true},
		{users(), 0, false, false, false, false},
		{users(a), 0, true, true, false, false},
		{open(a), a, false, true, false, false},
		{users(b), 0, true, false, true, false},
		{func() error { return caps.Close(0, full) }, 0, false, false, false, false},
		{users(b), 0, true, false, true, false},
		{func() error { return caps.Share(0) }, 0, false, true, true, true},
		{denies, 0, true, false, true, true},
		{func() error { return caps.Share(0) }, 0, false, true, true, true},
		{users(a), 0, true, true, false, false},
		{func() error { return os.Chmod(path, 0o600) }, 0, true, false, false, false},
		{users(a), 0, true, true, false, false},
		{func() error { return os.Chmod(path, 0o600) }, 0, true, false, false, false},
		{users(), 0, false, false, false, false},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != step.owner || hasACL(path) != step.acl || opens(t, path, a) != step.a ||
			opens(t, path, b) != step.b || opens(t, path, c) != step.c {
			t.Errorf("step %d: owner %d, mode %#o, ACL %v, access %v %v %v", i, st.Uid, st.Mode&0o7777, hasACL(path),
				opens(t, path, a), opens(t, path, b), opens(t, path, c))
		}
	}
}

// TestUsersUnchanged checks that Users does not change a file that is already correct.
func TestUsersUnchanged(t *testing.T) {
	caps, path := deviceFile(t, t.TempDir())
	for _, uids := range [][]uint32{{20002, 20001}, nil} {
		var before, after unix.Stat_t
		if err := errors.Join(caps.Users(0, uids), unix.Stat(path, &before), caps.Users(0, uids),
			unix.Stat(path, &after)); err != nil || before.Ctim != after.Ctim {
			t.Errorf("users %v: changed at %v and %v, %v", uids, before.Ctim, after.Ctim, err)
		}
	}
	if err := (gpu.Caps{Dev: t.TempDir()}).Users(0, []uint32{20001}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing device file: %v", err)
	}
}

// TestUsersWithoutACLs checks that no user has access on a file system without ACLs.
func TestUsersWithoutACLs(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	if out, err := exec.Command("mount", "-t", "ramfs", "ramfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	caps, path := deviceFile(t, dir)
	err := caps.Users(0, []uint32{20001})
	if err == nil || !strings.Contains(err.Error(), "has no POSIX ACLs") || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v", err)
	}
	if opens(t, path, 20001) || opens(t, path, 20002) {
		t.Error("users have access")
	}
	if err := errors.Join(caps.Users(0, nil), caps.Share(0)); err != nil || !opens(t, path, 20002) {
		t.Errorf("without users: %v", err)
	}
}

// TestUsersAtAnyTime checks during changes that only the users with access can open the file, and that the users of
// other fractions always can.
func TestUsersAtAnyTime(t *testing.T) {
	caps, path := deviceFile(t, t.TempDir())
	const stays, comes, other = 20001, 20002, 20003
	if err := caps.Users(0, []uint32{stays}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 1000 && err == nil; i++ {
			err = errors.Join(caps.Users(0, []uint32{comes, stays}), caps.Users(0, []uint32{stays}))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			if !opens(t, path, stays) || opens(t, path, other) {
				t.Fatal("a user lost access, or another user got it")
			}
		}
	}
}
