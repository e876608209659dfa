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

// TestWholeComputeInstance checks the CI profiles of H100 GPU instances, as nvidia-smi lists them: a 1g.20gb instance
// has two profiles with one compute slice, of which only 1_SLICE_REV1 has all SMs.
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
		{0, "7g.80gb", nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE, 132, 1},
		{0, "7g.80gb", 8, 0, 0}, // 7_SLICE_NVL
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
		_, ret = gi.GetComputeInstanceProfileInfo(9, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "GetComputeInstanceProfileInfo of an unknown profile")
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

// TestFirstInstance checks that a GPU's first instance cannot be created while a client has the GPU open.
func TestFirstInstance(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	d := m.device(0)
	m.ctl("hold", "0")
	_, ret := m.place(d, "1g.10gb", 0)
	m.want(ret, nvml.ERROR_IN_USE, "create the first instance")
	m.ctl("unhold", "0")
	m.carve(d, "1g.10gb", 0)
	m.ctl("hold", "0")
	m.carve(d, "1g.10gb", 1)
}

// TestFabric checks the states of a GPU on a system with NVSwitches.
func TestFabric(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "H100-80GB", "--dev-root", root, "--modify-device-files", "0", "--fabric", "0")
	d := m.device(0)
	state := func(want uint8) {
		t.Helper()
		info, ret := d.GetGpuFabricInfoV().V3()
		m.want(ret, nvml.SUCCESS, "GetGpuFabricInfoV")
		if info.State != want {
			t.Errorf("the state is %d, want %d", info.State, want)
		}
	}
	state(nvml.GPU_FABRIC_STATE_NOT_STARTED) // MIG mode is on
	m.ctl("mig-mode", "0", "off")
	state(nvml.GPU_FABRIC_STATE_NOT_STARTED) // Fabric Manager lacks its capability file
	makeCap(t, root, "0")
	state(nvml.GPU_FABRIC_STATE_COMPLETED)
}

// TestNoFabric checks the state of a GPU on a system without NVSwitches.
func TestNoFabric(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB", "--mig", "off")
	info, ret := m.device(0).GetGpuFabricInfo()
	m.want(ret, nvml.SUCCESS, "GetGpuFabricInfo")
	if info.State != nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
		t.Errorf("the state is %d", info.State)
	}
}

// TestPassthrough checks that a GPU of a virtual machine is unusable after its MIG mode is switched off.
func TestPassthrough(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--virtualization", "passthrough")
	d := m.device(0)
	mode, ret := d.GetVirtualizationMode()
	m.want(ret, nvml.SUCCESS, "GetVirtualizationMode")
	if mode != nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH {
		t.Errorf("the virtualization mode is %d", mode)
	}
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	m.want(ret, nvml.SUCCESS, "SetMigMode")
	m.want(activation, nvml.SUCCESS, "the activation")
	_, ret = m.device(0).GetMemoryInfo()
	m.want(ret, nvml.ERROR_RESET_REQUIRED, "GetMemoryInfo")
	m.ctl("reboot")
	_, ret = m.device(0).GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo after a reboot")
}

// TestResetBlockers checks that persistence mode and nvidia_drm prevent a reset without any process.
func TestResetBlockers(t *testing.T) {
	for _, option := range []string{"--persistence", "--drm"} {
		t.Run(option, func(t *testing.T) {
			m := newMachine(t, "--board", "A100-40GB", option, "1")
			d := m.device(0)
			activation, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
			m.want(ret, nvml.SUCCESS, "SetMigMode")
			m.want(activation, nvml.ERROR_IN_USE, "the activation with "+option)
			if option == "--persistence" {
				m.want(d.SetPersistenceMode(nvml.FEATURE_DISABLED), nvml.SUCCESS, "SetPersistenceMode")
				activation, _ = d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
				m.want(activation, nvml.SUCCESS, "the activation without persistence mode")
			}
		})
	}
}

// TestBootConfiguration checks that the driver restores the instances after a reboot, with new UUIDs.
func TestBootConfiguration(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB", "--boot-config", "1")
	_, _, before := m.carve(m.device(0), "3g.40gb", 4)
	m.ctl("reboot")
	if after := m.uuidOf(m.device(0), 2); after == before {
		t.Errorf("the UUID is still %s", after)
	}
	m.check()
}

// TestNewerDriver checks the GPU model whose driver has a profile number that the build's nvml.h does not know.
func TestNewerDriver(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB-NEWER")
	info, ret := m.device(0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT)
	m.want(ret, nvml.SUCCESS, "GetGpuInstanceProfileInfo")
	if info.Id != 99 {
		t.Errorf("the profile id is %d, want 99", info.Id)
	}
	_, ret = m.device(0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT + 1)
	m.want(ret, nvml.ERROR_INVALID_ARGUMENT, "GetGpuInstanceProfileInfo")
	m.ctl("create", "0", "1g.10gb+new", "3")
	m.check()
}

// TestStaleDevice checks that a process can find the MIG device that another process has destroyed.
func TestStaleDevice(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--stale-mig-devices", "1")
	d := m.device(0)
	m.ctl("create", "0", "1g.5gb", "0")
	_, ret := d.GetMigDeviceHandleByIndex(0)
	m.want(ret, nvml.SUCCESS, "GetMigDeviceHandleByIndex")
	m.ctl("destroy", "0", "7")
	_, ret = d.GetMigDeviceHandleByIndex(0)
	m.want(ret, nvml.SUCCESS, "GetMigDeviceHandleByIndex of the destroyed device")
	_, ret = d.GetGpuInstanceById(7)
	m.want(ret, nvml.ERROR_NOT_FOUND, "GetGpuInstanceById")
}
