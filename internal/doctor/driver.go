package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Driver is what NVIDIA's kernel module says of itself.
type Driver struct {
	// Modifies is NVreg_ModifyDeviceFiles, the module's default: nvidia-modprobe may make device files and set their
	// owner and mode.
	Modifies bool
	// Missing are the device files that every client of the GPUs needs and that are not there.
	Missing []string
	// Unscrubbed is whether freed GPU memory keeps its contents.
	Unscrubbed bool
}

// readDriver reads PROC/driver/nvidia/params, "ModifyDeviceFiles: 1" (os-registry.c and nv-caps.c of the open kernel
// modules 595.45.04), and looks for the files of so many GPUs under dev.
func readDriver(proc, dev string, gpus int) (Driver, error) {
	path := filepath.Join(proc, "driver/nvidia/params")
	data, err := os.ReadFile(path)
	if err != nil {
		return Driver{}, err
	}
	d, said := Driver{Unscrubbed: unscrubbed(string(data))}, false
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "ModifyDeviceFiles:"); ok {
			d.Modifies, said = strings.TrimSpace(value) != "0", true
		}
	}
	if !said {
		return d, fmt.Errorf("%s does not say ModifyDeviceFiles", path)
	}
	if _, err := os.Stat(filepath.Join(dev, "nvidiactl")); err != nil {
		d.Missing = append(d.Missing, filepath.Join(dev, "nvidiactl"))
	}
	// A minor is mostly, not always, the GPU's index: that there are as many is what counts.
	files, _ := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	for n := len(files); n < gpus; n++ {
		d.Missing = append(d.Missing, filepath.Join(dev, "nvidia<N>"))
	}
	return d, nil
}

// driver: once an instance is made, and until the agent has told the driver that its capability files are Caelum's,
// nvidia-modprobe makes them for everybody.
func driver(f *Facts) []Finding {
	const made = "the driver's ModifyDeviceFiles is "
	switch {
	case f.Driver.Modifies:
		return []Finding{
			modifies(
				f,
				made+"1: nvidia-modprobe, which is setuid root, makes a new slice's device files readable by everybody, until the agent closes them some milliseconds later",
				"`options nvidia NVreg_ModifyDeviceFiles=0` in /etc/modprobe.d/caelum.conf, `c /dev/nvidiactl 0666 root root - 195:255` and, for each GPU, `c /dev/nvidia0 0666 root root - 195:0` in /etc/tmpfiles.d/nvidia.conf; then reboot the node",
			),
		}
	case len(f.Driver.Missing) > 0:
		return []Finding{
			fault(
				made+"0, so nobody makes "+strings.Join(
					f.Driver.Missing,
					", ",
				)+", and it is not there: jobs cannot use this node's GPUs",
				"a line for each in /etc/tmpfiles.d/nvidia.conf (`c /dev/nvidiactl 0666 root root - 195:255`, `c /dev/nvidia0 0666 root root - 195:0`), then `systemd-tmpfiles --create nvidia.conf`",
			),
		}
	}
	return nil
}
