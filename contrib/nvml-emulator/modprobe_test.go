package nvmlemulator_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// managed is a machine whose device files nvidia-modprobe manages.
type managed struct {
	*machine
	root, proc string
}

func newManaged(t *testing.T) *managed {
	t.Helper()
	root, proc := devRoot(t), t.TempDir()
	return &managed{
		machine: newMachine(t, "--board", "A100-40GB", "--dev-root", root, "--proc-root", proc),
		root:    root, proc: proc,
	}
}

// file returns the path of a capability's device file.
func (m *managed) file(minor int) string {
	return filepath.Join(m.root, "nvidia-caps", fmt.Sprint("nvidia-cap", minor))
}

// restart calls nvmlInit again.
func (m *managed) restart() {
	m.Helper()
	m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
	m.want(m.Init(), nvml.SUCCESS, "Init")
}

// hasMode checks the mode of a capability's device file. The mode 0 stands for a missing file.
func (m *managed) hasMode(minor int, want os.FileMode) {
	m.Helper()
	info, err := os.Stat(m.file(minor))
	switch {
	case errors.Is(err, fs.ErrNotExist) && want == 0:
	case err != nil:
		m.Error(err)
	case info.Mode().Perm() != want:
		m.Errorf("nvidia-cap%d has mode %v, want %v", minor, info.Mode().Perm(), want)
	}
}

func (m *managed) chmod(minor int, mode os.FileMode) {
	m.Helper()
	if err := os.Chmod(m.file(minor), mode); err != nil {
		m.Fatal(err)
	}
}

// modify writes DeviceFileModify to an access file, without removing what the file already contains.
func (m *managed) modify(access string, value int) {
	m.Helper()
	f, err := os.OpenFile(filepath.Join(m.proc, "driver/nvidia/capabilities", access), os.O_WRONLY, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "DeviceFileModify: %d\n", value); err != nil {
		m.Fatal(err)
	}
}

// TestDeviceFileModify checks that a library call of root creates a capability's device file or restores its mode, as
// the real library does through nvidia-modprobe, and that DeviceFileModify 0 in the access file prevents both.
func TestDeviceFileModify(t *testing.T) {
	m := newManaged(t)
	gi, ci, _ := m.carve(m.device(0), "2g.10gb", 2)
	const giFile, ciFile = 39, 40 // GPU instance 4
	access := map[int]string{
		1: "mig/config", 2: "mig/monitor", giFile: "gpu0/mig/gi4/access", ciFile: "gpu0/mig/gi4/ci0/access",
	}
	ask := func() { // for all four capabilities
		m.restart()
		gi, _ = m.device(0).GetGpuInstanceById(4)
		ci, _ = gi.GetComputeInstanceById(0)
		m.migDevices(m.device(0))[0].GetMemoryInfo()
	}
	for minor := range access {
		if err := os.Remove(m.file(minor)); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	m.hasMode(1, 0o400)
	m.hasMode(2, 0o444)
	m.hasMode(giFile, 0o444)
	for _, minor := range []int{2, giFile} {
		m.chmod(minor, 0o400)
	}
	ask()
	m.hasMode(2, 0o444)
	m.hasMode(giFile, 0o444)

	for minor, name := range access {
		m.modify(name, 0)
		if minor == ciFile {
			continue // nothing has asked for it, because the library could open mig/monitor
		}
		m.chmod(minor, 0o440)
	}
	ask()
	for _, minor := range []int{1, 2, giFile} {
		m.hasMode(minor, 0o440)
	}
	os.Remove(m.file(2))
	os.Remove(m.file(giFile))
	ask()
	m.hasMode(2, 0)
	m.hasMode(giFile, 0)
	m.hasMode(ciFile, 0)
	m.modify(access[giFile], 1)
	m.modify(access[ciFile], 1)
	ask()
	m.hasMode(giFile, 0o444)
	m.hasMode(ciFile, 0o444)

	// The capability of a new instance has the driver's default.
	m.modify(access[ciFile], 0)
	m.chmod(ciFile, 0o400)
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy")
	_, ret := m.fullCI(gi)
	m.want(ret, nvml.SUCCESS, "create the compute instance again")
	m.hasMode(ciFile, 0o444)
	m.check()
}
