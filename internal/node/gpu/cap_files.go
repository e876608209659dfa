package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Caps restricts access to the capability files. To use an instance, a process must open its capability files. By
// default, nvidia-modprobe creates them with mode 0444, so any job on the node can use the slice until Caelum sets
// their owner and mode. With NVreg_ModifyDeviceFiles=0, only Caelum creates them. Files of destroyed instances remain.
type Caps struct {
	// Dev is the device directory (/dev on a real node), and Proc is /proc.
	Dev, Proc string
	// Sys is /sys if it is empty.
	Sys string
}

// Open allows only the given user to open the files of an instance. It creates missing files.
func (c Caps) Open(minor int, in Instance, uid uint32) error { return c.own(minor, in, int(uid), true) }

// Make allows only root to open the files of a new instance. It creates missing files.
func (c Caps) Make(minor int, in Instance) error { return c.own(minor, in, 0, true) }

// Close allows only root to open the files of an instance. It does not create missing files, because no process can
// open them, and another program may have removed the instance.
func (c Caps) Close(minor int, in Instance) error { return c.own(minor, in, 0, false) }

// CloseUnused allows only root to open the files of the ids that no instance has. Another program's instance may have
// left them readable by all users, and the next instance with this id may be one of a job's. found lists the instances
// of a GPU; a GPU whose MIG mode is off needs no such files.
func (c Caps) CloseUnused(minor int, found []Instance) (errs error) {
	for gi := range maxGI {
		if !slices.ContainsFunc(found, func(in Instance) bool { return in.GI == gi }) {
			errs = errors.Join(errs, c.Close(minor, Instance{GI: gi, CIs: []int{0}}))
		}
	}
	return errs
}

// own sets the owner and mode of an instance's files. If create is true, missing files are created; otherwise, they are
// ignored.
func (c Caps) own(minor int, in Instance, uid int, create bool) error {
	if in.Fraction() {
		return nil // the GPU's device file also gives access to other fractions (Users)
	}
	if in.GI == FullGI {
		if err := c.ownDevice(minor, uid, fullMode); err != nil {
			return fmt.Errorf("couldn't set the owner and mode of a GPU's device file: %w", err)
		}
		return nil
	}
	for _, cp := range c.of(minor, in) {
		if err := c.forbidModify(cp); err != nil {
			return fmt.Errorf("couldn't prevent nvidia-modprobe from changing a capability file: %w", err)
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

// forbidModify sets a capability's DeviceFileModify in the driver to 0. While the value is 1, nvidia-modprobe, which is
// setuid root and can be run by any user, makes the file readable by all users again (mknod_helper in
// nvidia-modprobe-utils.c). The kernel uses only the first line written to the file (nv_cap_procfs_release in
// nv-caps.c, 595.45.04).
func (c Caps) forbidModify(cp capability) error {
	if !cp.modify {
		return nil
	}
	return os.WriteFile(cp.access, fmt.Appendf(nil, "DeviceFileModify: 0\nDeviceFileMinor: %d\n", cp.minor), 0)
}

// Modifies reports whether nvidia-modprobe is permitted to create the files of a new instance and make them readable by
// all users (NVreg_ModifyDeviceFiles). It also returns true if the driver's parameters cannot be read.
func (c Caps) Modifies() bool {
	params, err := os.ReadFile(filepath.Join(c.Proc, "driver/nvidia/params"))
	return err != nil || !bytes.Contains(params, []byte("ModifyDeviceFiles: 0\n"))
}

// Prepare allows only root to open the capability files with which root changes and monitors the MIG configuration
// (mig/config and mig/monitor), and creates missing files. A process that can open mig/monitor can read the process ids
// and the memory in use of all instances. If an administrator has given such a file to a group, Prepare does not change
// it. It must be called before NVML is initialized.
func (c Caps) Prepare() error {
	for _, name := range []string{MIGConfig, MIGMonitor} {
		cp, ok := c.general(name)
		if !ok {
			continue // no driver with MIG support is loaded
		}
		path := c.file(cp.minor)
		if err := errors.Join(c.forbidModify(cp), c.ensure(path, cp.minor)); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm()&0o007 != 0 {
			err = errors.Join(os.Chmod(path, 0o400), os.Chown(path, 0, 0))
		}
		if err != nil {
			return fmt.Errorf("couldn't restrict a capability file: %w", err)
		}
	}
	return nil
}

// reach creates the capability file of a GPU instance if it does not exist, because the driver refuses every call on
// compute instances, also root's, unless the caller can open this file. It never changes an existing file, because the
// instance may belong to another program or to a job. Without capability devices, the driver does not require the file.
func (c Caps) reach(minor, gi int) error {
	if c.Dev == "" {
		return nil
	}
	cp := c.of(minor, Instance{GI: gi})[0]
	if err := c.ensure(c.file(cp.minor), cp.minor); !errors.Is(err, ErrNoCapabilities) {
		return err
	}
	return nil
}

// Files returns the paths of the access-restricted files that a process must open to use an instance: the capability
// files or, for the mig.Full profile, the GPU's device file. minor is the GPU's minor number.
func (c Caps) Files(minor int, in Instance) []string {
	if in.GI <= FullGI {
		return []string{c.DeviceFile(minor)}
	}
	var paths []string
	for _, cp := range c.of(minor, in) {
		paths = append(paths, c.file(cp.minor))
	}
	return paths
}

func (c Caps) file(minor int) string {
	return filepath.Join(c.Dev, "nvidia-caps", "nvidia-cap"+strconv.Itoa(minor))
}

// ensure creates a capability file if it does not exist. nvidia-modprobe creates the file only when a client first
// needs it, or never if NVreg_ModifyDeviceFiles=0 is set.
func (c Caps) ensure(path string, minor int) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	major, err := c.major()
	if err != nil {
		return fmt.Errorf("couldn't create %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o755); err == nil {
		err = os.Chmod(dir, 0o755) // the umask may have cleared permission bits that clients need
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o400, int(unix.Mkdev(major, uint32(minor)))); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("couldn't create %s: %w", path, err)
	}
	return nil
}
