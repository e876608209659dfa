package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Caps opens and closes the capability files that let a process use an instance. The driver makes them readable by
// all (0444), so a slice is open to every job of the node until somebody owns its files.
type Caps struct {
	// Dev is the device directory, /dev on a real node; Proc is /proc.
	Dev, Proc string
}

// Open gives the files of an instance to a user alone, and makes those that are missing.
func (c Caps) Open(minor int, in Instance, uid uint32) error { return c.own(minor, in, int(uid), true) }

// Make gives the files of a new instance to root alone, and makes those that are missing.
func (c Caps) Make(minor int, in Instance) error { return c.own(minor, in, 0, true) }

// Close gives the files of an instance to root alone. It makes none: the instance may have been removed meanwhile, and
// its files with it.
func (c Caps) Close(minor int, in Instance) error { return c.own(minor, in, 0, false) }

// own sets owner and mode of an instance's files; those that are missing are made or left out.
func (c Caps) own(minor int, in Instance, uid int, create bool) error {
	for _, cp := range c.of(minor, in) {
		if err := c.keep(cp); err != nil {
			return fmt.Errorf("couldn't keep nvidia-modprobe from a capability file: %w", err)
		}
		path := c.file(cp.minor)
		if create {
			if err := c.ensure(path, cp.minor); err != nil {
				return err
			}
		} else if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Chmod(path, 0o400); err != nil {
			return fmt.Errorf("couldn't set the mode of a capability file: %w", err)
		}
		if err := os.Chown(path, uid, 0); err != nil {
			return fmt.Errorf("couldn't set the owner of a capability file: %w", err)
		}
	}
	return nil
}

// keep tells the driver that this file is somebody else's. Until then nvidia-modprobe, setuid root and run by whoever
// wants to use the instance, gives the file back to everybody (mknod_helper of nvidia-modprobe-utils.c). The kernel
// reads the first line of what is written (nv_cap_procfs_release of nv-caps.c, 595.45.04).
func (c Caps) keep(cp capability) error {
	if !cp.modify {
		return nil
	}
	return os.WriteFile(cp.access, fmt.Appendf(nil, "DeviceFileModify: 0\nDeviceFileMinor: %d\n", cp.minor), 0)
}

// Modifies reports whether the driver may let nvidia-modprobe make a new instance's files, readable by all
// (NVreg_ModifyDeviceFiles).
func (c Caps) Modifies() bool {
	params, err := os.ReadFile(filepath.Join(c.Proc, "driver/nvidia/params"))
	return err != nil || !bytes.Contains(params, []byte("ModifyDeviceFiles: 0\n"))
}

// Prepare makes the capability files that root needs to change the configuration and to watch it, where the driver is
// told to make none (NVreg_ModifyDeviceFiles=0). Where it makes them itself there is nothing to do.
func (c Caps) Prepare() error {
	for _, name := range []string{"config", "monitor"} {
		cp := readAccess(filepath.Join(c.Proc, "driver/nvidia/capabilities/mig", name), 0)
		if cp.minor == 0 || cp.modify {
			continue
		}
		if err := c.ensure(c.file(cp.minor), cp.minor); err != nil {
			return err
		}
	}
	return nil
}

// Files are the paths of the capability files of an instance of a GPU with this minor.
func (c Caps) Files(minor int, in Instance) []string {
	var paths []string
	for _, cp := range c.of(minor, in) {
		paths = append(paths, c.file(cp.minor))
	}
	return paths
}

func (c Caps) file(minor int) string {
	return filepath.Join(c.Dev, "nvidia-caps", "nvidia-cap"+strconv.Itoa(minor))
}

// ensure makes the file if nobody has yet: nvidia-modprobe does it only when some client first needs it, or never.
func (c Caps) ensure(path string, minor int) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	major, err := c.major()
	if err != nil {
		return fmt.Errorf("couldn't make %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o755); err == nil {
		err = os.Chmod(dir, 0o755) // clients search it, whatever the umask
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o400, int(unix.Mkdev(major, uint32(minor)))); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("couldn't make %s: %w", path, err)
	}
	return nil
}
