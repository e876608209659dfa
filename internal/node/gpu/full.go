package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"caelum/internal/core/mig"
)

// FullGI is the GPU instance id that represents the mig.Full profile. No real GPU instance has this id.
const FullGI = -1

// A GPU whose MIG mode is off appears as an instance of the mig.Full profile, which occupies the whole GPU. Creating
// this instance switches MIG mode off, and destroying it switches MIG mode on. On Ampere and older GPUs, the driver
// resets the GPU to switch the mode. On Hopper and newer GPUs, no reset is needed (NVIDIA MIG User Guide, "Enable MIG
// Mode").

// full returns the instance of a GPU whose MIG mode is off.
func (d *device) full() Instance {
	return Instance{GI: FullGI, Profile: mig.Full, Size: d.grid, CIs: []int{0}, Whole: true, UUID: d.uuid}
}

// isFull reports whether the GPU's MIG mode is off, or the GPU does not support MIG.
func (d *device) isFull() (bool, error) {
	current, _, ret := d.handle.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return true, nil
	}
	return ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_DISABLE, check(ret, "read the MIG mode")
}

// ErrVirtual means that the MIG mode of a GPU in a virtual machine is not switched off.
var ErrVirtual = errors.New("the node is a virtual machine, where a GPU whose MIG mode is switched off is unusable " +
	"until the machine reboots; set `whole_gpus: never`, or switch MIG mode off before the node boots and set " +
	"`whole_gpus` to the number of full GPUs")

// virtual reports whether the driver runs in a virtual machine with the GPU, or on a host for virtual GPUs.
func (n *NVML) virtual(dev nvml.Device) bool {
	if n.lib.Extensions().LookupSymbol("nvmlDeviceGetVirtualizationMode") != nil {
		return false
	}
	mode, ret := dev.GetVirtualizationMode()
	return ret == nvml.SUCCESS && mode != nvml.GPU_VIRTUALIZATION_MODE_NONE
}

// Persistent implements Hardware.
func (n *NVML) Persistent(gpu int) bool {
	d, err := n.device(gpu)
	if err != nil || n.lib.Extensions().LookupSymbol("nvmlDeviceGetPersistenceMode") != nil {
		return false
	}
	mode, ret := d.handle.GetPersistenceMode()
	return ret == nvml.SUCCESS && mode == nvml.FEATURE_ENABLED
}

// switchTo sets the GPU's MIG mode. If the driver does not activate the mode, switchTo restores the previous mode, so
// that no change remains pending, and returns an error. The error wraps ErrInUse if a process is using the GPU. In a
// virtual machine, switchTo does not switch MIG mode off (ErrVirtual).
func (d *device) switchTo(mode int) error {
	if d.virtual && mode == nvml.DEVICE_MIG_DISABLE {
		return fmt.Errorf("couldn't switch the MIG mode: %w", ErrVirtual)
	}
	err := retryInUse(func() error {
		activation, ret := d.handle.SetMigMode(mode)
		if ret == nvml.SUCCESS {
			ret = activation
		}
		return check(ret, "switch the MIG mode")
	})
	// The driver can return SUCCESS for a mode that it has not activated.
	current, pending, ret := d.handle.GetMigMode()
	switch {
	case ret != nvml.SUCCESS:
		return errors.Join(err, check(ret, "read the MIG mode"))
	case current == mode && pending == mode:
		return nil
	}
	if pending != current {
		_, ret = d.handle.SetMigMode(current)
		err = errors.Join(err, check(ret, "restore the MIG mode"))
	}
	if err == nil {
		err = fmt.Errorf("couldn't switch the MIG mode: the GPU needs a reset: %w", ErrInUse)
	}
	return err
}

// While MIG mode is off, a GPU's device file, /dev/nvidiaN, gives access to the whole GPU. While MIG mode is on, every
// process needs this file, and the capability files restrict access to the slices.

// sharedMode is the mode of a GPU's device file while MIG mode is on. It is also the driver's default.
const sharedMode = 0o666

// fullMode is the mode of a GPU's device file while MIG mode is off. CUDA opens the file for both reading and writing.
const fullMode = 0o600

// DeviceFile returns the path of a GPU's device file. minor is the GPU's minor number.
func (c Caps) DeviceFile(minor int) string { return filepath.Join(c.Dev, "nvidia"+strconv.Itoa(minor)) }

// Share allows all users to open a GPU's device file, as slices require.
func (c Caps) Share(minor int) error { return c.ownDevice(minor, 0, sharedMode) }

// ownDevice sets the owner and mode of a GPU's device file, and removes its ACL (Users). If all are already correct, it
// changes nothing, because running jobs may open the file at any time.
func (c Caps) ownDevice(minor, uid int, mode os.FileMode) error {
	path := c.DeviceFile(minor)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil && int(st.Uid) == uid && st.Mode&0o7777 == uint32(mode) &&
		readACL(path) == nil {
		return nil
	}
	// The mode is changed both before and after the owner, so that neither owner ever has the access intended for the
	// other. The first mode also denies access to the users in the ACL.
	return errors.Join(os.Chmod(path, mode&fullMode), removeACL(path), os.Lchown(path, uid, 0), os.Chmod(path, mode))
}

// Device returns the device number of a GPU's device file.
func (c Caps) Device(minor int) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(c.DeviceFile(minor), &st); err != nil {
		return Device{}, fmt.Errorf("couldn't read %s: %w", c.DeviceFile(minor), err)
	}
	return Device{unix.Major(st.Rdev), unix.Minor(st.Rdev)}, nil
}

// Managed returns g with the mig.Full profile if w allows this profile on g, or if none of the node's GPUs supports
// MIG. A GPU that is always full has no other profile. If w allows the profile, it is not a problem that MIG mode is
// off. If the result has a problem, its Model is nil.
func (g GPU) Managed(w mig.FullGPUs) GPU {
	may := g.Problem == WithoutMIG || w.Allows(g.Index, g.Reset) && (g.Full || g.Problem == "")
	if g.Model != nil && may {
		g.Model, g.Problem = g.Model.WithFull(g.MemoryMiB), ""
		if g.Index < w.Fixed {
			g.Model = g.Model.Select(func(p mig.Profile) bool { return p.Name == mig.Full })
		}
	}
	if g.Problem != "" {
		g.Model = nil
	}
	return g
}
