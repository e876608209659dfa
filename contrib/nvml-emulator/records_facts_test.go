package nvmlemulator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// replays replays the records of what the driver did, by their text. Each function returns the driver's answer as
// nvidia-smi prints it, with which the recorded text must begin.
var replays = map[string]func(t *testing.T) string{
	"dgi with CI": func(t *testing.T) string {
		m := newMachine(t, "--board", "RTX-PRO-6000-96GB")
		gi, _, _ := m.carve(m.device(0), "1g.24gb", 0)
		return nvml.ErrorString(gi.Destroy())
	},
	"cgi while nsys has /dev/nvidia0 open": func(t *testing.T) string {
		m := newMachine(t, "--board", "H100-96GB")
		m.ctl("hold", "0")
		_, ret := m.place(m.device(0), "1g.12gb", 0)
		return nvml.ErrorString(ret)
	},
	"cgi over the limit": func(t *testing.T) string {
		m := newMachine(t, "--board", "H100-96GB")
		m.carve(m.device(0), "1g.12gb+me", 0)
		_, ret := m.place(m.device(0), "1g.12gb+me", 1)
		return nvml.ErrorString(ret)
	},
	"create at an occupied placement": func(t *testing.T) string {
		m := newMachine(t, "--board", "H100-80GB")
		m.carve(m.device(0), "1g.10gb", 2)
		_, ret := m.place(m.device(0), "2g.20gb", 2)
		if ret == nvml.ERROR_INSUFFICIENT_RESOURCES {
			return "INSUFFICIENT_RESOURCES"
		}
		return nvml.ErrorString(ret)
	},
	"memory info of the parent GPU without the mig-monitor capability": func(t *testing.T) string {
		m := newMachine(t, "--board", "A100-40GB", "--dev-root", devRoot(t), "--modify-device-files", "0")
		_, ret := m.device(0).GetMemoryInfo()
		return nvml.ErrorString(ret)
	},
	"root@host: nvidia-smi mig -lci": func(t *testing.T) string {
		root := devRoot(t)
		m := newMachine(t, "--board", "A100-40GB", "--dev-root", root, "--modify-device-files", "0")
		m.ctl("create", "0", "1g.5gb", "0")
		gi, ret := m.device(0).GetGpuInstanceById(7)
		m.want(ret, nvml.SUCCESS, "GetGpuInstanceById")
		_, ret = gi.GetComputeInstanceById(0)
		return nvml.ErrorString(ret)
	},
	"reset with persistence mode on": func(t *testing.T) string { return resetWith(t, "--persistence") },
	"reset with nvidia_drm loaded":   func(t *testing.T) string { return resetWith(t, "--drm") },
	"MIG mode with nvidia_drm, persistenced or DCGM active": func(t *testing.T) string {
		m := newMachine(t, "--board", "A100-40GB", "--drm", "1")
		activation, ret := m.device(0).SetMigMode(nvml.DEVICE_MIG_DISABLE)
		m.want(ret, nvml.SUCCESS, "SetMigMode")
		current, pending, _ := m.device(0).GetMigMode()
		if current == pending {
			t.Error("the mode is not pending")
		}
		return "pending, " + nvml.ErrorString(activation)
	},
	"SetMigMode(DISABLE) in a passthrough VM": func(t *testing.T) string {
		m := newMachine(t, "--board", "A100-40GB", "--virtualization", "passthrough")
		activation, ret := m.device(0).SetMigMode(nvml.DEVICE_MIG_DISABLE)
		m.want(activation, nvml.SUCCESS, "the activation")
		_, after := m.device(0).GetMemoryInfo()
		m.want(after, nvml.ERROR_RESET_REQUIRED, "GetMemoryInfo")
		return nvml.ErrorString(ret)
	},
	"GetMigDeviceHandleByIndex after another process deleted a MIG device": func(t *testing.T) string {
		m := newMachine(t, "--board", "A100-40GB", "--stale-mig-devices", "1")
		m.ctl("create", "0", "1g.5gb", "0")
		_, ret := m.device(0).GetMigDeviceHandleByIndex(0)
		m.want(ret, nvml.SUCCESS, "GetMigDeviceHandleByIndex")
		m.ctl("destroy", "0", "7")
		_, ret = m.device(0).GetMigDeviceHandleByIndex(0)
		return nvml.ErrorString(ret)
	},
	"MIG off": func(t *testing.T) string {
		root := devRoot(t)
		m := newMachine(t, "--board", "H100-80GB", "--dev-root", root,
			"--modify-device-files", "0", "--fabric", "0")
		m.ctl("mig-mode", "0", "off")
		info, ret := m.device(0).GetGpuFabricInfo()
		if ret != nvml.SUCCESS || info.State == nvml.GPU_FABRIC_STATE_COMPLETED {
			t.Errorf("without Fabric Manager: %+v, %v", info, ret)
		}
		makeCap(t, root, "0")
		if info, ret := m.device(0).GetGpuFabricInfo(); info.State != nvml.GPU_FABRIC_STATE_COMPLETED {
			t.Errorf("with Fabric Manager: %+v, %v", info, ret)
		}
		return "Fabric Manager must be running"
	},
	"at NVML init": func(t *testing.T) string {
		m := newManaged(t)
		m.carve(m.device(0), "1g.5gb", 0)
		return fmt.Sprint(m.modprobes(m.restart))
	},
}

func resetWith(t *testing.T, option string) string {
	m := newMachine(t, "--board", "A100-40GB", option, "1")
	out, status := m.exit(m.command("nvidia-smi", "--gpu-reset", "-i", "0"))
	if status == 0 {
		return out
	}
	activation, _ := m.device(0).SetMigMode(nvml.DEVICE_MIG_DISABLE)
	return nvml.ErrorString(activation)
}

// modprobes returns the commands of nvidia-modprobe that create the files which exist after f, beginning without any.
func (m *managed) modprobes(f func()) (commands []string) {
	m.Helper()
	caps := filepath.Dir(m.file(0))
	if err := errors.Join(os.RemoveAll(caps), os.Mkdir(caps, 0o755)); err != nil {
		m.Fatal(err)
	}
	f()
	files, err := os.ReadDir(caps)
	if err != nil {
		m.Fatal(err)
	}
	for _, file := range files {
		name := strings.NewReplacer("nvidia-cap1", "mig/config", "nvidia-cap2", "mig/monitor").Replace(file.Name())
		commands = append(commands, "nvidia-modprobe -s -f=/proc/driver/nvidia/capabilities/"+name)
	}
	return commands
}
