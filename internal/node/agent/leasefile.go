package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// slotMajor is the major number of the placeholder devices for gres/gpu. The kernel reserves major number 42 for
// demonstrations and samples, so no driver uses it. The placeholders must be character devices, because Slurm does not
// set CUDA_VISIBLE_DEVICES for regular files. Their device numbers must differ from those of all devices that jobs
// need, because ConstrainDevices denies access by device number.
const slotMajor = 42

// slotMode is the mode of the placeholder devices. It allows a task to check with access(2) which slots its devices
// cgroup allows. The placeholders do not provide access to any real device, because no driver serves them.
const slotMode = 0o444

// makeSlots creates the device files of the slots before slurmd checks them. slurmd does not start if a file listed
// in gres.conf is missing. So that a broken GPU does not make all others unavailable, makeSlots never creates fewer
// files than an earlier agent did.
func (a *Agent) makeSlots() error {
	text, err := a.ledger.Meta("slots")
	if err != nil {
		return err
	}
	had, _ := strconv.Atoi(text)
	n := max(had, a.node.SlotCount())
	dir := filepath.Join(a.cfg.DeviceDir, "caelum")
	if err := makeDir(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		path := filepath.Join(dir, "slot"+strconv.Itoa(i))
		if err := unix.Mknod(path, unix.S_IFCHR|slotMode, int(unix.Mkdev(slotMajor, uint32(i)))); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("couldn't create %s: %w", path, err)
		}
		if err := os.Chmod(path, slotMode); err != nil { // independent of the umask
			return err
		}
	}
	return a.ledger.SetMeta("slots", strconv.Itoa(n))
}

// makeDir creates a directory and its parents. It sets the mode of the directory regardless of the umask, even if the
// directory already exists.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func (a *Agent) prepareRunDir() error {
	if err := makeDir(a.cfg.RunDir, 0o755); err != nil {
		return err
	}
	jobs := filepath.Join(a.cfg.RunDir, "jobs")
	if err := makeDir(jobs, 0o700); err != nil {
		return err
	}
	for _, l := range a.node.Leases {
		if a.hasLeaseFile(*l) {
			continue
		}
		// An error is harmless: a prolog that has not received an answer repeats its call, and all other jobs will run
		// an epilog.
		if err := a.writeLeaseFile(*l); err != nil {
			a.log.WithError(err).WithField("job", l.Job).Warn("couldn't write a missing or outdated lease file")
		}
	}
	return nil
}

// hasLeaseFile reports whether a lease's file contains the lease. If the file also names slices that a restored lease
// lacks, it is kept. The lines that depend on slurmctld's configuration are not compared.
func (a *Agent) hasLeaseFile(l api.Lease) bool {
	file, err := readLeaseFile(a.leaseFile(l.Job), l.Job)
	file.Slices = slices.DeleteFunc(file.Slices, func(s api.Slice) bool {
		return !slices.ContainsFunc(l.Slices, func(own api.Slice) bool { return own.Slot == s.Slot })
	})
	return err == nil && leaseText(file, "", nil) == leaseText(l, "", nil)
}

func (a *Agent) leaseFile(job uint32) string {
	return filepath.Join(a.cfg.RunDir, "jobs", strconv.FormatUint(uint64(job), 10))
}

// writeLeaseFile atomically replaces the lease file that task_init reads (docs/internals/interfaces.md). If it needs
// slurmctld's configuration and cannot read it, the error is api.NotNow.
func (a *Agent) writeLeaseFile(l api.Lease) error {
	index := "absolute"
	var own []gpu.Device
	if l.Error == "" && len(l.Slices) > 0 {
		c, err := a.slurmConfig(context.Background())
		if err != nil {
			return api.NotNow(err.Error())
		}
		if c.RelativeIndex() {
			index = "relative"
			if own, err = a.ownDevices(l); err != nil {
				return err
			}
		}
	}
	if err := writeFile(a.leaseFile(l.Job), leaseText(l, index, own), 0o600); err != nil {
		return fmt.Errorf("couldn't write the lease file: %w", err)
	}
	return nil
}

// unfinished is the pattern for the temporary file names that writeFile uses.
const unfinished = ".new-*"

// removeUnfinished removes the temporary files that a killed agent left behind. The caller must ensure that no agent is
// serving calls at the same time, because that agent could be writing a temporary file.
func (a *Agent) removeUnfinished() {
	for _, dir := range []string{a.cfg.RunDir, filepath.Join(a.cfg.RunDir, "jobs")} {
		left, _ := filepath.Glob(filepath.Join(dir, unfinished))
		for _, path := range left {
			if err := os.Remove(path); err != nil {
				a.log.WithError(err).Warn("couldn't remove an incomplete file left by an earlier agent")
			}
		}
	}
}

// writeFile atomically replaces a file. The new file belongs to the agent's user and group, even in a setgid directory,
// and has the given mode, independently of the umask.
func writeFile(path, text string, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chown(os.Geteuid(), os.Getegid()), f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func leaseText(l api.Lease, index string, own []gpu.Device) string {
	var b strings.Builder
	fmt.Fprintf(&b, "caelum-lease 1\njob %d\nrestart %d\nuid %d\nindex %s\n", l.Job, l.Restart, l.UID, index)
	if l.Error != "" {
		fmt.Fprintf(&b, "error %s\n", oneLine(l.Error))
	} else {
		if l.Cgroup.Inode != 0 {
			fmt.Fprintf(&b, "cgroup %d\n", l.Cgroup.Inode)
		}
		behind := map[int]string{}
		for _, s := range l.Slices {
			behind[s.Slot] = gpu.LeasedUUID(s.UUID, s.Profile)
		}
		for _, slot := range l.Slots {
			uuid := behind[slot]
			if uuid == "" {
				uuid = "-"
			}
			fmt.Fprintf(&b, "slot %d %s\n", slot, uuid)
		}
		writeDevices(&b, own)
	}
	b.WriteString("end\n")
	return b.String()
}

// oneLine replaces each control character in a string with a space, so that the result is a single line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func (a *Agent) removeLeaseFile(job uint32) error {
	if err := os.Remove(a.leaseFile(job)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("couldn't remove a lease file: %w", err)
	}
	return nil
}
