package qualify

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
)

// file is the state of a device file or of the directory nvidia-caps. Only /dev/nvidiaN and the files in nvidia-caps
// are recorded: a run touches no others, and a CUDA program may load modules with files of their own.
type file struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // with the file's type
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Rdev uint64 `json:"rdev"`
}

var gpuFile = regexp.MustCompile(`^nvidia[0-9]+$`)

// deviceFiles returns the state of the device files.
func deviceFiles(dev string) ([]file, error) {
	var all []file
	add := func(path string) error {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("couldn't read %s: %w", path, err)
		}
		all = append(all, file{path, st.Mode, int(st.Uid), int(st.Gid), st.Rdev})
		return nil
	}
	names, err := os.ReadDir(dev)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if gpuFile.MatchString(n.Name()) {
			if err := add(filepath.Join(dev, n.Name())); err != nil {
				return nil, err
			}
		}
	}
	caps := filepath.Join(dev, "nvidia-caps")
	if err := add(caps); err != nil {
		return nil, err
	}
	names, _ = os.ReadDir(caps)
	for _, n := range names {
		if err := add(filepath.Join(caps, n.Name())); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// restoreFiles gives the device files their earlier owners and modes, and removes those that did not exist. It leaves
// the files in keep, which belong to instances that another program has created since, and returns what it changed.
func restoreFiles(dev string, before []file, keep map[string]bool) (changed []string, err error) {
	now, err := deviceFiles(dev)
	if err != nil {
		return nil, err
	}
	slices.Reverse(now) // files before their directory
	for _, f := range now {
		k := slices.IndexFunc(before, func(b file) bool { return b.Path == f.Path })
		switch {
		case keep[f.Path]:
		case k < 0:
			if e := os.Remove(f.Path); errors.Is(e, unix.ENOTEMPTY) {
				continue
			} else if e != nil {
				err = errors.Join(err, e)
				continue
			}
			changed = append(changed, f.Path+" removed")
		case f != before[k]:
			b := before[k]
			if f.Rdev != b.Rdev || f.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT {
				continue // another program has replaced the file
			}
			// The file is closed to everyone while its owner changes.
			e := errors.Join(os.Chmod(f.Path, fs.FileMode(b.Mode&f.Mode&0o777)), os.Lchown(f.Path, b.UID, b.GID),
				os.Chmod(f.Path, fs.FileMode(b.Mode&0o777)))
			err = errors.Join(err, e)
			changed = append(changed, f.Path+" restored")
		}
	}
	return changed, err
}

// accessField returns a field of an access file, such as DeviceFileMinor, or "".
func accessField(text []byte, field string) string {
	for line := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && key == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// bootID identifies the time since the last boot.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// filesOf returns the capability files of the instances that exist now but did not exist before.
func filesOf(caps gpu.Caps, cards []*card, before map[string][]instance) (map[string]bool, error) {
	keep := map[string]bool{}
	for _, c := range cards {
		if !c.mig {
			continue
		}
		now, err := c.instances()
		if err != nil {
			return nil, err
		}
		for _, in := range now {
			if slices.Contains(before[c.uuid], in) {
				continue
			}
			for _, path := range caps.Files(c.minor, gpu.Instance{GI: in.GI, CIs: []int{0, 1, 2, 3, 4, 5, 6, 7}}) {
				keep[path] = true
			}
		}
	}
	return keep, nil
}
