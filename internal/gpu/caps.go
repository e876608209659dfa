package gpu

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Caps opens and closes the capability files that let a process use an instance. The driver makes them readable by
// all (0444), so a slice is open to every job of the node until somebody owns its files.
type Caps struct {
	// Dev is the device directory, /dev on a real node; Proc is /proc.
	Dev, Proc string
}

// Open gives the files of an instance to a user and nobody else.
func (c Caps) Open(minor int, in Instance, uid uint32) error { return c.own(minor, in, int(uid)) }

// Close takes the files of an instance back: root only.
func (c Caps) Close(minor int, in Instance) error { return c.own(minor, in, 0) }

func (c Caps) own(minor int, in Instance, uid int) error {
	for _, m := range c.minors(minor, in) {
		path := c.file(m)
		if err := c.ensure(path, m); err != nil {
			return err
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

// Files are the paths of the capability files of an instance of a GPU with this minor.
func (c Caps) Files(minor int, in Instance) []string {
	var paths []string
	for _, m := range c.minors(minor, in) {
		paths = append(paths, c.file(m))
	}
	return paths
}

func (c Caps) file(minor int) string {
	return filepath.Join(c.Dev, "nvidia-caps", "nvidia-cap"+strconv.Itoa(minor))
}

// minors are the device minors of the instance's GI and CIs: what the driver says under /proc, else its formula
// (nv-caps.c of the open kernel modules 595.45.04): GI M of gpu N has 3 + 135 N + 9 M, its CI K that + 1 + K.
func (c Caps) minors(minor int, in Instance) []int {
	dir := filepath.Join(c.Proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", minor, in.GI))
	gi := 3 + 135*minor + 9*in.GI
	all := []int{deviceFileMinor(filepath.Join(dir, "access"), gi)}
	for _, ci := range in.CIs {
		all = append(all, deviceFileMinor(filepath.Join(dir, fmt.Sprintf("ci%d/access", ci)), gi+1+ci))
	}
	return all
}

// deviceFileMinor reads "DeviceFileMinor: 111" from a capability's access file.
func deviceFileMinor(path string, otherwise int) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "DeviceFileMinor:"); ok {
			if m, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
				return m
			}
		}
	}
	return otherwise
}

// ensure makes the file if nobody has yet: nvidia-modprobe does it only when some client first needs it.
func (c Caps) ensure(path string, minor int) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	major, err := c.major()
	if err != nil {
		return fmt.Errorf("couldn't make %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o400, int(unix.Mkdev(major, uint32(minor)))); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("couldn't make %s: %w", path, err)
	}
	return nil
}

// major is the number of the character device class nvidia-caps, which the kernel hands out at load time.
func (c Caps) major() (uint32, error) {
	f, err := os.Open(filepath.Join(c.Proc, "devices"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) == 2 && fields[1] == "nvidia-caps" {
			n, err := strconv.ParseUint(fields[0], 10, 32)
			return uint32(n), err
		}
	}
	return 0, errors.New("the kernel lists no device nvidia-caps; is the driver loaded with MIG support?")
}
