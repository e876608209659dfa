package nvmlemulator_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// makeCap creates a capability file as root does with NVreg_ModifyDeviceFiles=0.
func makeCap(t *testing.T, root, minor string) string {
	t.Helper()
	var like syscall.Stat_t
	if err := syscall.Stat(filepath.Join(root, "nvidia0"), &like); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "nvidia-caps", "nvidia-cap"+minor)
	n := 0
	for _, c := range minor {
		n = 10*n + int(c-'0')
	}
	dev := int(like.Rdev>>8&0xfff)<<8 | n&0xff | (n&^0xff)<<12
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o400, dev); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFilesThatNobodyMakes checks that with NVreg_ModifyDeviceFiles=0, even root needs the files of mig/config and
// mig/monitor before nvmlInit, and a GPU instance's file before its compute instances.
func TestFilesThatNobodyMakes(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "A100-40GB", "--dev-root", root, "--modify-device-files", "0")
	d := m.device(0)
	again := func() {
		m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
		m.want(m.Init(), nvml.SUCCESS, "Init")
	}
	_, ret := m.place(d, "2g.10gb", 2)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "create without mig/config")
	makeCap(t, root, "1")
	_, ret = m.place(d, "2g.10gb", 2)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "create with mig/config made after nvmlInit")
	again()
	gi, ret := m.place(d, "2g.10gb", 2)
	m.want(ret, nvml.SUCCESS, "create")
	_, ret = m.fullCI(gi)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "create a compute instance without the GPU instance's file")
	_, ret = gi.GetComputeInstanceById(0)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "list the compute instances without the GPU instance's file")
	file := makeCap(t, root, "39") // GPU instance 4
	ci, ret := m.fullCI(gi)
	m.want(ret, nvml.SUCCESS, "create a compute instance")
	_, ret = d.GetMemoryInfo()
	m.want(ret, nvml.ERROR_NO_PERMISSION, "GetMemoryInfo of the GPU without mig/monitor")
	_, ret = d.GetComputeRunningProcesses()
	m.want(ret, nvml.ERROR_NO_PERMISSION, "GetComputeRunningProcesses of the GPU without mig/monitor")
	mine := m.migDevices(d)[0]
	_, ret = mine.GetMemoryInfo()
	m.want(ret, nvml.ERROR_NO_PERMISSION, "GetMemoryInfo of a MIG device without its files")
	makeCap(t, root, "40")
	_, ret = mine.GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo of a MIG device with its files")
	makeCap(t, root, "2")
	_, ret = d.GetMemoryInfo()
	m.want(ret, nvml.ERROR_NO_PERMISSION, "GetMemoryInfo with mig/monitor made after nvmlInit")
	again()
	_, ret = d.GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo with mig/monitor")
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy the compute instance")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy the GPU instance")
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("a file that the driver did not make is gone: %v", err)
	}
	m.check()
}

// TestSwappedHalves checks both orders of the GPU instance ids that real 8-unit GPUs have. By default, every second GPU
// begins with the second half.
func TestSwappedHalves(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--board", "A30-24GB", "--gpus", "2")
	for _, c := range []struct {
		gpu     int
		profile string
		start   int
		id      uint32
	}{
		{0, "3g.20gb", 0, 1}, {1, "3g.20gb", 0, 2}, {1, "3g.20gb", 4, 1},
		{0, "2g.10gb", 4, 5}, {1, "2g.10gb", 4, 3}, {1, "2g.10gb", 0, 5},
		{0, "1g.5gb", 0, 7}, {1, "1g.5gb", 4, 7}, {1, "1g.5gb", 0, 11}, {1, "7g.40gb", 0, 0},
		{3, "2g.12gb", 0, 1}, {3, "1g.6gb", 2, 5},
	} {
		gi, ret := m.place(m.device(c.gpu), c.profile, c.start)
		m.want(ret, nvml.SUCCESS, "create")
		info, _ := gi.GetInfo()
		if info.Id != c.id {
			t.Errorf("GPU %d: %s at %d has the id %d, want %d", c.gpu, c.profile, c.start, info.Id, c.id)
		}
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	}
	m.check()
}

// TestWholeComputeInstance checks the CI profiles of H100 GPU instances, as nvidia-smi lists them: a 1g.20gb instance has
// two profiles with one compute slice, of which only 1_SLICE_REV1 has all SMs.
func TestWholeComputeInstance(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB", "--board", "A100-40GB")
	for _, c := range []struct {
		gpu       int
		name      string
		profile   int
		sms, most uint32 // 0: the GPU instance does not have the profile
	}{
		{0, "1g.20gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 16, 1},
		{0, "1g.20gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, 26, 1},
		{0, "1g.10gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 16, 1},
		{0, "1g.10gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, 0, 0},
		{0, "2g.20gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 16, 2},
		{0, "2g.20gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, 26, 1},
		{0, "3g.40gb", nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, 60, 1},
		{1, "1g.10gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 14, 1},
		{1, "1g.10gb", nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, 0, 0},
	} {
		gi, ret := m.place(m.device(c.gpu), c.name, 0)
		m.want(ret, nvml.SUCCESS, "create "+c.name)
		info, ret := gi.GetComputeInstanceProfileInfo(c.profile, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if c.sms == 0 {
			m.want(ret, nvml.ERROR_NOT_SUPPORTED, "GetComputeInstanceProfileInfo")
		} else if info.MultiprocessorCount != c.sms || info.InstanceCount != c.most {
			t.Errorf("%s, CI profile %d: %d SMs, at most %d, want %d and %d",
				c.name, c.profile, info.MultiprocessorCount, info.InstanceCount, c.sms, c.most)
		}
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	}
	m.check()
}

// TestCalls checks that the calls of all processes are counted.
func TestCalls(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	m.ctl("calls", "--reset")
	for range 3 {
		d.GetMemoryInfo()
	}
	gi, _ := m.place(d, "1g.5gb", 0)
	gi.Destroy()
	calls := m.ctl("calls")
	for _, want := range []string{"MEMORY 3\n", "CREATE_GI 1\n", "DESTROY_GI 1\n"} {
		if !strings.Contains(calls, want) {
			t.Errorf("calls lacks %q:\n%s", want, calls)
		}
	}
}
