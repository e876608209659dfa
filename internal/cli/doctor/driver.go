package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
)

// Driver describes the parameters and device files of NVIDIA's kernel module.
type Driver struct {
	// Modifies is true if NVreg_ModifyDeviceFiles is not 0 (the default is 1). In that case, nvidia-modprobe may create
	// device files and set their owner and mode.
	Modifies bool
	// Missing lists the device files that every GPU program needs but that do not exist.
	Missing []string
	// Unscrubbed is true if GPU memory is not cleared when it is freed.
	Unscrubbed bool
	// General holds the device files of the capabilities that do not belong to an instance.
	General []GeneralFile
}

// readDriver reads the "ModifyDeviceFiles: 1" line in PROC/driver/nvidia/params, where PROC is the value of proc
// (source: os-registry.c and nv-caps.c of the open kernel modules 595.45.04). It also checks whether nvidiactl and
// one device file for each GPU are in the dev directory.
func readDriver(proc, dev string, gpus int) (Driver, error) {
	path := filepath.Join(proc, "driver/nvidia/params")
	data, err := os.ReadFile(path)
	if err != nil {
		return Driver{}, err
	}
	d, found := Driver{Unscrubbed: gpu.Unscrubbed(string(data)), General: readGeneral(proc, dev, gpu.UnitDirs)}, false
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "ModifyDeviceFiles:"); ok {
			d.Modifies, found = strings.TrimSpace(value) != "0", true
		}
	}
	if !found {
		return d, fmt.Errorf("couldn't find the ModifyDeviceFiles line in %s", path)
	}
	if _, err := os.Stat(filepath.Join(dev, "nvidiactl")); err != nil {
		d.Missing = append(d.Missing, filepath.Join(dev, "nvidiactl"))
	}
	// A GPU's minor number may differ from its index, so readDriver compares only the number of files.
	files, _ := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	for n := len(files); n < gpus; n++ {
		d.Missing = append(d.Missing, filepath.Join(dev, "nvidia<N>"))
	}
	return d, nil
}

// forbidModify is the remedy if NVreg_ModifyDeviceFiles is 1.
const forbidModify = "put `options nvidia NVreg_ModifyDeviceFiles=0` into /etc/modprobe.d/caelum.conf; put " +
	"`c /dev/nvidiactl 0666 root root - 195:255` and, for each GPU, " +
	"`c /dev/nvidia0 0666 root root - 195:0` into /etc/tmpfiles.d/nvidia.conf; reboot the node"

// modifies returns the finding for NVreg_ModifyDeviceFiles=1. Without a devices cgroup, all users' jobs can open the
// device files, and a descriptor that was opened before the agent restricts access remains usable.
func (f *Facts) modifies(text, unconfined, confined string) Finding {
	if !f.lacks(Slurmctld) && !f.Config.RelativeIndex() {
		return fault(text+"; ConstrainDevices is not yes in cgroup.conf, so "+unconfined, forbidModify)
	}
	return warning(text+confined, forbidModify)
}

// driver checks NVreg_ModifyDeviceFiles. If it is 1, nvidia-modprobe creates the capability files of a new instance
// with access for all users, who can open them until the agent has restricted access.
func driver(f *Facts) []Finding {
	const made = "the driver's ModifyDeviceFiles is "
	switch {
	case f.Driver.Modifies:
		found := []Finding{f.modifies(
			made+"1: nvidia-modprobe, which is setuid root, makes the device files of a new slice readable by all "+
				"users, and the agent restricts access a few milliseconds later",
			"any process can open the files during these milliseconds and keep them open", "",
		)}
		if !f.lacks(Agent) && slices.Contains(f.Agent.Profiles, mig.Full) {
			found = append(found, f.modifies(
				made+"1 and this node may have full GPUs: nvidia-modprobe, which every user can run, makes the device "+
					"files of full GPUs accessible to all users",
				"every job's processes can use other jobs' full GPUs", "; processes outside jobs can use full GPUs",
			))
		}
		return found
	case len(f.Driver.Missing) > 0:
		return []Finding{fault(
			made+"0, so no program creates missing device files: jobs cannot use this node's GPUs without "+
				strings.Join(f.Driver.Missing, ", "),
			"add a line for each missing file to /etc/tmpfiles.d/nvidia.conf "+
				"(`c /dev/nvidiactl 0666 root root - 195:255`, `c /dev/nvidia0 0666 root root - 195:0`), then "+
				"run `systemd-tmpfiles --create nvidia.conf`",
		)}
	}
	return nil
}

func scrubbing(f *Facts) []Finding {
	return findingIf(fault(
		"the driver's parameter "+gpu.ScrubKey+" is set: jobs can read earlier jobs' data in GPU memory",
		"remove "+gpu.ScrubKey+" from NVreg_RegistryDwords in /etc/modprobe.d, then reboot the node",
	), f.Driver.Unscrubbed)
}
