package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// On systems with NVSwitches, Fabric Manager connects each GPU to the fabric of NVLinks. While MIG mode is off, CUDA
// programs on a GPU fail with error 802 (system not yet initialized) until the GPU has registered with the fabric.

// ErrFabric means that a GPU whose MIG mode is off cannot be used yet, because it has not registered with the fabric.
var ErrFabric = errors.New("the GPU has not registered with the NVLink fabric")

// fabricStates names the fabric states as nvidia-smi does.
var fabricStates = map[uint8]string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "Not Started",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "In Progress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "Completed",
}

// Fabric implements Hardware.
func (n *NVML) Fabric(gpu int) error {
	d, err := n.device(gpu)
	if err != nil {
		return err
	}
	state, status, ret := n.fabric(d.handle)
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND:
		return nil
	case ret != nvml.SUCCESS:
		return fmt.Errorf("GPU %d: %w", gpu, check(ret, "read the fabric state"))
	case state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED:
		return nil
	case state == nvml.GPU_FABRIC_STATE_COMPLETED && status == nvml.SUCCESS:
		return nil
	case state == nvml.GPU_FABRIC_STATE_COMPLETED:
		return fmt.Errorf("%w (state Completed, status %s)", ErrFabric, nvml.ErrorString(status))
	}
	name := fabricStates[state]
	if name == "" {
		name = fmt.Sprint(state)
	}
	return fmt.Errorf("%w (state %s)", ErrFabric, name)
}

// fabric returns a GPU's fabric state and, if the state is COMPLETED, the result of the registration. Drivers without
// nvmlDeviceGetGpuFabricInfoV (before 535) have only nvmlDeviceGetGpuFabricInfo, and older ones have neither.
func (n *NVML) fabric(dev nvml.Device) (state uint8, status, ret nvml.Return) {
	if n.lib.Extensions().LookupSymbol("nvmlDeviceGetGpuFabricInfoV") == nil {
		info, ret := dev.GetGpuFabricInfoV().V2()
		return info.State, nvml.Return(info.Status), ret
	}
	if n.lib.Extensions().LookupSymbol("nvmlDeviceGetGpuFabricInfo") == nil {
		info, ret := dev.GetGpuFabricInfo()
		return info.State, nvml.Return(info.Status), ret
	}
	return 0, nvml.SUCCESS, nvml.ERROR_FUNCTION_NOT_FOUND
}

// Capability is a capability of the driver that does not belong to an instance.
type Capability struct {
	Name string // the path of its access file below /proc/driver
	Path string // its device file
	// Minor is the minor number of the device file. The major number is that of nvidia-caps.
	Minor int
	// Managed is true if nvidia-modprobe creates the device file and sets its mode. Otherwise, nothing does.
	Managed bool
}

// These are the access files of the capabilities that do not belong to an instance (nv-caps.c of the open kernel
// modules 595.45.04).
const (
	MIGConfig  = "nvidia/capabilities/mig/config"
	MIGMonitor = "nvidia/capabilities/mig/monitor"
	FabricMgmt = "nvidia-nvlink/capabilities/fabric-mgmt"
	IMEXMgmt   = "nvidia/capabilities/fabric-imex-mgmt"
)

// general reads the access file of a capability that does not belong to an instance. ok is false if the driver does not
// have the capability.
func (c Caps) general(name string) (cp capability, ok bool) {
	cp = readAccess(filepath.Join(c.Proc, "driver", name), -1)
	return cp, cp.minor >= 0
}

// General returns the capabilities that do not belong to an instance, as far as the driver has them.
func (c Caps) General() []Capability {
	var all []Capability
	for _, name := range []string{MIGConfig, MIGMonitor, FabricMgmt, IMEXMgmt} {
		if cp, ok := c.general(name); ok {
			all = append(all, Capability{name, c.file(cp.minor), cp.minor, cp.modify})
		}
	}
	return all
}

// capabilityUnits names the units of the programs that need a capability and that only some nodes have.
var capabilityUnits = map[string]string{
	FabricMgmt: "nvidia-fabricmanager.service",
	IMEXMgmt:   "nvidia-imex.service",
}

// UnitDirs are the directories of unit files that packages and administrators install.
var UnitDirs = []string{"/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"}

// Unused reports whether no program on this node needs a capability: its unit is not in any of the units directories
// and, for Fabric Manager, the driver lists no NVSwitch (procfs_nvswitch.c of the open kernel modules 595.45.04). The
// driver has the capability on every node.
func (c Caps) Unused(name string, units []string) bool {
	unit := capabilityUnits[name]
	installed := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, unit))
		return err == nil
	}
	if unit == "" || slices.ContainsFunc(units, installed) {
		return false
	}
	switches, _ := filepath.Glob(filepath.Join(c.Proc, "driver/nvidia-nvswitch/devices/*"))
	return name != FabricMgmt || len(switches) == 0
}

// PrepareFabric creates the device files that Fabric Manager and the IMEX daemon need, with mode 0400 and root as
// their owner, if NVreg_ModifyDeviceFiles=0 prevents nvidia-modprobe from creating them. It does not change files that
// exist, because a site may have given them to the user of Fabric Manager.
func (c Caps) PrepareFabric() error {
	for _, g := range c.General() {
		if g.Managed || g.Name != FabricMgmt && g.Name != IMEXMgmt {
			continue
		}
		if err := c.ensure(g.Path, g.Minor); err != nil {
			return err
		}
	}
	return nil
}

// MIGDevices returns the devices of the capabilities mig/config and mig/monitor, which no job may open: a process that
// can open mig/monitor can read the process ids and the memory use of all instances.
func (c Caps) MIGDevices() ([]Device, error) {
	major, err := c.major()
	if err != nil {
		return nil, err
	}
	var all []Device
	for _, g := range c.General() {
		if g.Name == MIGConfig || g.Name == MIGMonitor {
			all = append(all, Device{major, uint32(g.Minor)})
		}
	}
	return all, nil
}

// DRM reports whether the nvidia_drm module is loaded. Like a process, it keeps the driver from resetting a GPU.
func (c Caps) DRM() bool {
	sys := c.Sys
	if sys == "" {
		sys = "/sys"
	}
	_, err := os.Stat(filepath.Join(sys, "module/nvidia_drm"))
	return !errors.Is(err, fs.ErrNotExist)
}
