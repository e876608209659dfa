package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfine checks the device list and the lease files if Slurm uses a devices cgroup. The device list must name
// all devices that require a lease, and each lease file those of its lease.
func TestConfine(t *testing.T) {
	w := newWorld(t, 2)
	w.fake.SetConfig("TaskPlugin", "task/cgroup")
	w.fake.SetConfig("ConstrainDevices", "yes")
	w.publish()
	list := filepath.Join(w.cfg.RunDir, "devices")
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	// Each of the two GPUs has 15 GPU instances, each with its first compute instance.
	if len(lines) != 3+2*2*15 || lines[0] != "caelum-devices 1" || lines[1] != "cgroup /sys/fs/cgroup" ||
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
