package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/node/gpu"
)

// TestConfine checks the device list and the lease files if Slurm uses a devices cgroup. The device list must name
// all devices that require a lease, and each lease file those of its lease.
func TestConfine(t *testing.T) {
	w := newWorld(t, 2)
	w.fake.SetConfig("TaskPlugin", "task/cgroup")
	w.fake.SetConfig("ConstrainDevices", "yes")
	for minor, name := range []string{1: gpu.MIGConfig, 2: gpu.MIGMonitor} {
		path := filepath.Join(w.node.Proc, "driver", name)
		if _, err := os.Stat(path); name == "" || err == nil {
			continue
		}
		text := fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 256\nDeviceFileModify: 0\n", minor)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o444))
		if err != nil {
			t.Fatal(err)
		}
	}
	w.publish()
	list := filepath.Join(w.cfg.RunDir, "devices")
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	// Each of the two GPUs has 15 GPU instances, each with its first compute instance. mig/config and mig/monitor have
	// one device each.
	if len(lines) != 3+2*2*15+2 || !strings.Contains(string(data), "\ndevice 60:1\ndevice 60:2\nend\n") ||
		lines[0] != "caelum-devices 1" || lines[1] != "cgroup /sys/fs/cgroup" ||
		lines[2] != "device 60:3" ||
		lines[len(lines)-1] != "end" {
		t.Errorf("%d lines:\n%s", len(lines), data)
	}
	if info, err := os.Stat(list); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	id := w.startNow("2g.10gb")
	w.lease(id)
	lease := w.leaseFile(id)
	own := 0
	for line := range strings.Lines(lease) {
		if strings.HasPrefix(line, "device ") {
			own++
			if !strings.Contains(string(data), "\n"+line) {
				t.Errorf("%q of the lease file is not in the device list", line)
			}
		}
	}
	if own != 2 || !strings.Contains(lease, "\nindex relative\n") || !strings.HasSuffix(lease, "\nend\n") {
		t.Errorf("the lease file:\n%s", lease)
	}
}

// TestNoConfine checks that the agent writes no device list if Slurm uses no devices cgroup, and removes an earlier
// one.
func TestNoConfine(t *testing.T) {
	w := newWorld(t, 1)
	list := filepath.Join(w.cfg.RunDir, "devices")
	if err := os.WriteFile(list, []byte("of an earlier configuration"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if _, err := os.Stat(list); !os.IsNotExist(err) {
		t.Errorf("the device list exists: %v", err)
	}
	id := w.startNow("2g.10gb")
	w.lease(id)
	if lease := w.leaseFile(id); strings.Contains(lease, "device") || !strings.Contains(lease, "\nindex absolute\n") {
		t.Errorf("the lease file:\n%s", lease)
	}
}
