package qualify

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"caelum/internal/node/gpu"
)

// createAny creates a slice of the smallest profile, with its compute instance. It returns nil if the GPU has no room.
func (r *run) createAny(c *card) (*slice, error) {
	p, start, ok := c.room()
	if !ok {
		return nil, nil
	}
	s, ret, err := r.create(c, p, start)
	if err != nil || ret != nvml.SUCCESS {
		return nil, err
	}
	if err := r.prepare(s); err != nil {
		return s, err
	}
	_, err = r.inspect(s)
	return s, err
}

// access checks what nvidia-modprobe and an ordinary user can do to a slice's files and to the GPU's (A5, A14, A26).
func (r *run) access(c *card) error {
	s, err := r.createAny(c)
	if s == nil || err != nil {
		return err
	}
	if s.ci != nil {
		if err := r.capabilityFiles(s); err != nil {
			return err
		}
	}
	if err := r.deviceFile(c); err != nil {
		return err
	}
	if err := r.monitor(c); err != nil {
		return err
	}
	return r.heldFile(s)
}

// heldFile destroys a slice while its capability file is open (A11).
func (r *run) heldFile(s *slice) error {
	fd, err := unix.Open(r.caps.Files(s.c.minor, gpu.Instance{GI: s.GI})[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.rep.skip("A11", "couldn't open a capability file: %v", err)
		return r.destroy(s)
	}
	ret := nvml.SUCCESS
	if s.ci != nil {
		if ret = s.ci.Destroy(); ret == nvml.SUCCESS {
			s.ci = nil
		}
	}
	r.rep.check(ret == nvml.SUCCESS, "A11", "the destroy of a slice whose file was open answered %s",
		nvml.ErrorString(ret))
	if ret == nvml.SUCCESS {
		err = r.destroy(s)
	}
	unix.Close(fd)
	return errors.Join(err, r.destroy(s))
}

// modprobe runs nvidia-modprobe, and reports whether it exists. It is setuid root, so it does the same for all users.
func (r *run) modprobe(args ...string) bool {
	if _, err := os.Stat(r.opt.Modprobe); err != nil {
		return false
	}
	cmd := exec.Command(r.opt.Modprobe, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Run() // its effect on the files is what counts
	return true
}

// closed reports whether a file belongs to root and has the given mode.
func closed(path string, mode uint32) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0 && st.Mode&0o777 == mode
}

func (r *run) capabilityFiles(s *slice) error {
	in := gpu.Instance{GI: s.GI, CIs: []int{s.ciID}}
	files := r.caps.Files(s.c.minor, in)
	ran := false
	for k, ci := range []int{-1, s.ciID} {
		path := r.accessPath(s, ci)
		ran = r.modprobe("-f="+path) || ran
		data, _ := os.ReadFile(path)
		if accessField(data, "DeviceFileModify") != "0" {
			r.rep.differs("A5", "DeviceFileModify of a slice is %q after 0 was written",
				accessField(data, "DeviceFileModify"))
		}
		if !closed(files[k], 0o400) {
			r.rep.differs("A5", "nvidia-modprobe changed the owner or mode of a slice's file")
		}
	}
	l, err := r.lookAs(s.c, files...)
	switch {
	case err != nil:
		r.rep.skip("A14", "couldn't run a process as the user nobody: %v", err)
	case len(l.Open) > 0 && closed(files[0], 0o400) && closed(files[1], 0o400):
		r.rep.differs("A5", "an ordinary user can open a slice's file of mode 0400")
	}
	if ran {
		r.rep.holds("A5", "nvidia-modprobe left the files of a slice unchanged")
	} else {
		r.rep.holds("A5", "the driver stored DeviceFileModify 0; nvidia-modprobe is not installed")
	}
	return nil
}

// deviceFile closes the GPU's device file for a moment (A26).
func (r *run) deviceFile(c *card) error {
	path := r.caps.DeviceFile(c.minor)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		r.rep.skip("A26", "couldn't read %s", path)
		return nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	defer os.Chmod(path, os.FileMode(st.Mode&0o777))
	l, err := r.lookAs(c, path)
	ran := r.modprobe("-c", strconv.Itoa(c.minor))
	switch {
	case err != nil:
		r.rep.skip("A26", "couldn't run a process as the user nobody: %v", err)
	case slices.Contains(l.Open, path):
		r.rep.differs("A26", "an ordinary user can open %s with mode 0600", filepath.Base(path))
	case ran && closed(path, 0o600) == r.caps.Modifies():
		r.rep.differs("A26", "with ModifyDeviceFiles: %t, nvidia-modprobe left a device file's mode: %t",
			r.caps.Modifies(), closed(path, 0o600))
	default:
		r.rep.holds("A26", "an ordinary user could not open %s with mode 0600", filepath.Base(path))
	}
	return nil
}

// monitor closes mig/monitor for a moment and reads the GPU's processes and memory as an ordinary user (A14).
func (r *run) monitor(c *card) error {
	access := filepath.Join(r.opt.Proc, "driver/nvidia/capabilities/mig/monitor")
	data, err := os.ReadFile(access)
	minor := accessField(data, "DeviceFileMinor")
	if err != nil || minor == "" {
		minor = "2"
	} else if accessField(data, "DeviceFileModify") == "1" {
		// Otherwise, the user's nvmlInit would let nvidia-modprobe open the file again.
		before := fmt.Sprintf("DeviceFileModify: 1\nDeviceFileMinor: %s\n", minor)
		if err := r.journal.write(entry{Op: opAccess, Path: access, Text: before}); err != nil {
			return err
		}
		closed := strings.Replace(before, "Modify: 1", "Modify: 0", 1)
		if err := os.WriteFile(access, []byte(closed), 0); err != nil {
			return err
		}
		defer os.WriteFile(access, []byte(before), 0)
	}
	path := filepath.Join(r.opt.Dev, "nvidia-caps", "nvidia-cap"+minor)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		r.rep.skip("A14", "%s does not exist", filepath.Base(path))
		return nil
	}
	if err := os.Chmod(path, 0o400); err != nil {
		return err
	}
	defer os.Chmod(path, os.FileMode(st.Mode&0o777))
	l, err := r.lookAs(c, path)
	refused := nvml.ErrorString(nvml.ERROR_NO_PERMISSION)
	switch {
	case err != nil:
		r.rep.skip("A14", "couldn't run a process as the user nobody: %v", err)
	case len(l.Open) > 0:
		r.rep.differs("A14", "an ordinary user can open mig/monitor with mode 0400")
	case l.Init != "":
		r.rep.skip("A14", "NVML answered an ordinary user: %s", l.Init)
	case l.Processes != refused || l.Memory != refused:
		r.rep.differs("A14", "without mig/monitor, an ordinary user's process list answered %q and the memory %q",
			l.Processes, l.Memory)
	default:
		r.rep.holds("A14", "without mig/monitor, an ordinary user got no process list and no memory of a GPU")
	}
	return nil
}

// behind lets a second process create and destroy an instance while this session is open (A15).
func (r *run) behind(c *card) error {
	if len(c.profiles) == 0 {
		return nil
	}
	p, start, ok := c.room()
	if !ok {
		r.rep.skip("A15", "GPU %d has no free placement", c.index)
		return nil
	}
	n, err := r.journal.creating(c, p, start)
	if err != nil {
		return err
	}
	h, err := r.start(false, "carve", r.opt.Library, strconv.Itoa(c.index), strconv.Itoa(int(p.info.Id)),
		strconv.Itoa(start), strconv.Itoa(p.size))
	if err != nil {
		return err
	}
	id := -1 // the agent asks for instances by id
	seen := func() (bool, error) {
		now, err := c.instances()
		k := slices.IndexFunc(now, func(in instance) bool {
			return in.Profile == int(p.info.Id) && in.Start == start
		})
		if k >= 0 {
			id = now[k].GI
		}
		_, ret := c.dev.GetGpuInstanceById(id)
		return k >= 0 || id >= 0 && ret == nvml.SUCCESS, err
	}
	if _, err := h.wait(); err != nil {
		h.end()
		r.rep.skip("A15", "a second process could not create an instance")
		return nil
	}
	during, err1 := seen()
	if err := h.end(); err != nil {
		return fmt.Errorf("the second process could not destroy its instance, %s at %d of GPU %d: %w; the next run "+
			"removes it", p.title(), start, c.index, err)
	}
	after, err2 := seen()
	switch {
	case err1 != nil || err2 != nil:
		r.rep.skip("A15", "the list of instances failed")
	case during && !after:
		r.rep.holds("A15", "an open session saw another process's instance come and go")
	default:
		r.rep.differs("A15", "the list showed another process's instance while it existed: %t, afterwards: %t",
			during, after)
	}
	if after && err2 == nil {
		return nil // a stale list: the instance is gone, and the line without opGone does no harm
	}
	return r.journal.write(entry{N: n, Op: opGone})
}
