package clients

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestShortComputeInstances repeats what was recorded on H100 NVL GPUs. mig-parted creates compute instances of the
// first profile with one slice, which has 16 SMs, even if the GPU instance has 26 SMs (labels of gpu-feature-discovery,
// June 2025). nvidia-smi and `nvml-emulator create` use the profile with the most SMs (driver 560.35.03).
func TestShortComputeInstances(t *testing.T) {
	b := modelNamed(t, "H100-NVL-94GB")
	m := newMachine(t, b, 2)
	m.applyConfig("1g.24gb", 4)
	short := map[string]string{
		"mig-1g.24gb.count": "8", "mig-1g.24gb.multiprocessors": "16", "mig-1g.24gb.memory": "22144",
	}
	m.wantLabels(short)
	m.applyConfig("1g.12gb", 7)
	m.wantLabels(map[string]string{"mig-1g.12gb.multiprocessors": "16", "mig-1g.12gb.memory": "11008"})

	full := newMachine(t, b, 1)
	full.ctl("create", "0", "1g.24gb")
	full.wantLabels(map[string]string{"mig-1g.24gb.multiprocessors": "26", "mig-1g.24gb.memory": "22144"})
}

// TestFirstComputeInstanceProfile checks on each GPU model that mig-parted's compute instance in a 1g profile with
// twice the memory has the SMs of the plain 1g profile. On Ampere, these are all SMs of the GPU instance.
func TestFirstComputeInstanceProfile(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		for _, p := range b.profiles {
			if !p.plain() || p.slices != 1 || p.size == b.profiles[0].size {
				continue
			}
			m := newMachine(t, b, 1)
			m.applyConfig(p.name, 1)
			key := "mig-" + p.name + ".multiprocessors"
			m.wantLabels(map[string]string{key: fmt.Sprint(b.profiles[0].sms)})
		}
	})
}

// TestMigPartedWithoutFiles runs mig-parted on machines where neither the driver nor nvidia-modprobe creates capability
// files (NVreg_ModifyDeviceFiles=0). Without the file of mig/monitor, mig-parted cannot read the GPU's memory. With the
// files of mig/config and mig/monitor it can create a GPU instance, but no compute instance, because it does not create
// the GPU instance's file, and it cannot remove the GPU instance again.
func TestMigPartedWithoutFiles(t *testing.T) {
	eachModel(t, func(t *testing.T, b model) {
		m := newMachine(t, b, 1, "--modify-device-files", "0")
		m.write("config.yaml", migConfig(b.profiles[0].name, 1))
		m.refused("error getting device memory: Insufficient Permissions")
		if show := m.ctl("show"); strings.Contains(show, "GI ") {
			t.Errorf("mig-parted created an instance:\n%s", show)
		}
		for minor := 1; minor <= 2; minor++ {
			m.makeCapability(minor)
		}
		m.refused("Error creating Compute instance")
		if show := m.ctl("show"); strings.Count(show, "GI ") != 1 || strings.Contains(show, "CI ") {
			t.Errorf("mig-parted did not leave a GPU instance without compute instance:\n%s", show)
		}
	})
}

// refused applies config.yaml with mig-parted, which must fail with a message.
func (m *machine) refused(message string) {
	m.Helper()
	cmd := m.command("nvidia-mig-parted", "apply", "-f", m.path("config.yaml"), "-c", "current")
	if _, stderr, status := m.status(cmd); status == 0 || !strings.Contains(stderr, message) {
		m.Errorf("mig-parted apply: exit status %d\n%s, want a failure with %q", status, stderr, message)
	}
}

// makeCapability creates a capability file as a site would.
func (m *machine) makeCapability(minor int) {
	m.Helper()
	if err := os.MkdirAll(m.path("dev/nvidia-caps"), 0o755); err != nil {
		m.Fatal(err)
	}
	const major = 60 // that of nvidia-caps in the emulator's /proc/devices
	file := m.path(fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", minor))
	if err := syscall.Mknod(file, syscall.S_IFCHR|0o400, major<<8|minor); err != nil {
		m.Fatal(err)
	}
}
