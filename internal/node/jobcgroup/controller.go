package jobcgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultMountpoint is Slurm's default for CgroupMountpoint. NVIDIA's driver supports only this path.
const defaultMountpoint = "/sys/fs/cgroup"

// modeKey is the registry key that selects the driver's controller (NVIDIA, "MPS v3 Memory Partitioning").
const modeKey = "RmMemacctMode"

// standInKey is a key that only the NVML emulator uses. Its value is the name of a controller that the kernel of a test
// has, unlike dmem and misc. The kernel's rules for enabling and inheriting a controller are the same for all of them.
const standInKey = "RmMemacctController"

// Controller returns the controller by which the driver finds the cgroup whose limit applies to a process: "dmem", or
// "misc" on kernels older than 6.14. proc is /proc on a real node. The error is the reason why the driver cannot limit
// the memory of cgroups, with a remedy.
func Controller(mountpoint, proc string) (name string, err error) {
	mountpoint = cmp.Or(mountpoint, defaultMountpoint)
	if err := unified(mountpoint); err != nil {
		return "", err
	}
	path := filepath.Join(proc, "driver/nvidia/params")
	params, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("couldn't read the NVIDIA driver's parameters: %w; load the driver", err)
	}
	mode, _ := strconv.ParseUint(cmp.Or(registryValue(string(params), modeKey), "3"), 0, 32)
	switch name = registryValue(string(params), standInKey); {
	case mode == 0:
		return "", fmt.Errorf("the NVIDIA driver's memory limits are off (%s=0 in %s); remove %s from "+
			"NVreg_RegistryDwords in /etc/modprobe.d, and load the driver again", modeKey, path, modeKey)
	case name != "":
	case mode == 1:
		name = "misc"
	case mode == 2 || lists(mountpoint, "cgroup.controllers", "dmem"):
		name = "dmem"
	default:
		name = "misc"
	}
	return name, available(mountpoint, name)
}

// registryValue returns the value of a registry key in the driver's parameters, or an empty string. The line has the
// form `RegistryDwords: "KEY=VALUE;KEY=VALUE"`.
func registryValue(params, key string) (value string) {
	for line := range strings.Lines(params) {
		text, ok := strings.CutPrefix(line, "RegistryDwords:")
		if !ok {
			continue
		}
		for setting := range strings.SplitSeq(strings.Trim(strings.TrimSpace(text), `"`), ";") {
			k, v, _ := strings.Cut(setting, "=")
			if strings.EqualFold(strings.TrimSpace(k), key) {
				value = strings.TrimSpace(v)
			}
		}
	}
	return value
}

// unified returns an error unless mountpoint is in a cgroup v2 hierarchy.
func unified(mountpoint string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(mountpoint, &st); err != nil {
		return fmt.Errorf("couldn't read %s: %w; correct CgroupMountpoint in cgroup.conf", mountpoint, err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is not cgroup v2, which the NVIDIA driver's memory limits need; boot the node with "+
			"systemd.unified_cgroup_hierarchy=1, and use Slurm's cgroup/v2 plugin", mountpoint)
	}
	return nil
}

// available returns an error unless the kernel has a controller in the cgroup v2 hierarchy.
func available(mountpoint, controller string) error {
	if !lists(mountpoint, "cgroup.controllers", controller) {
		return fmt.Errorf("%s does not have the controller %s, which the NVIDIA driver's memory limits need; use a "+
			"kernel with CONFIG_CGROUP_%s, without cgroup_disable=%s", mountpoint, controller,
			strings.ToUpper(controller), controller)
	}
	return nil
}

// lists reports whether a file of a cgroup, cgroup.controllers or cgroup.subtree_control, contains a controller. The
// result is true if no controller is needed.
func lists(dir, file, controller string) bool {
	if controller == "" {
		return true
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(data)), controller)
}
