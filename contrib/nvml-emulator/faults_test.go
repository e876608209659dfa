package nvmlemulator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestFaults(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2")
	d := m.device(0)

	t.Run("second call and the call after it", func(t *testing.T) {
		m.ctl("fault", "add", "--call", "CREATE_GI", "--nth", "2", "--times", "2", "--error", "NVML_ERROR_IN_USE")
		for i, want := range []nvml.Return{nvml.SUCCESS, nvml.ERROR_IN_USE, nvml.ERROR_IN_USE, nvml.SUCCESS} {
			_, ret := m.placeByID(d, 19, uint32(i))
			m.want(ret, want, "create")
		}
		if out := m.ctl("fault", "list"); out != "" {
			t.Errorf("a fault remains after its last call: %s", out)
		}
	})
	t.Run("one GPU", func(t *testing.T) {
		m.ctl("fault", "add", "--call", "CREATE_GI", "--gpu", "1", "--error", "INSUFFICIENT_RESOURCES")
		_, ret := m.placeByID(d, 19, 5)
		m.want(ret, nvml.SUCCESS, "create on GPU 0")
		_, ret = m.placeByID(m.device(1), 19, 5)
		m.want(ret, nvml.ERROR_INSUFFICIENT_RESOURCES, "create on GPU 1")
	})
	t.Run("create of a compute instance", func(t *testing.T) {
		m.ctl("fault", "add", "--call", "CREATE_CI", "--error", "UNKNOWN")
		gi, ret := m.placeByID(m.device(1), 19, 6)
		m.want(ret, nvml.SUCCESS, "create")
		_, ret = m.fullCI(gi)
		m.want(ret, nvml.ERROR_UNKNOWN, "create compute instance")
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	})
	t.Run("error after the creation", func(t *testing.T) {
		m.ctl("fault", "add", "--call", "CREATE_GI", "--error", "UNKNOWN", "--after")
		_, ret := m.placeByID(m.device(0), 19, 2)
		m.want(ret, nvml.ERROR_UNKNOWN, "create")
		_, ret = m.device(0).GetGpuInstanceById(9)
		m.want(ret, nvml.SUCCESS, "GetGpuInstanceById of the remaining instance")
	})
	t.Run("calls without a change, until the fault is cleared", func(t *testing.T) {
		m.ctl("fault", "add", "--call", "MEMORY", "--times", "0", "--error", "UNKNOWN")
		for range 3 {
			_, ret := d.GetMemoryInfo()
			m.want(ret, nvml.ERROR_UNKNOWN, "GetMemoryInfo")
		}
		m.ctl("fault", "clear")
		_, ret := d.GetMemoryInfo()
		m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	})
	m.check()
}

func TestLostGPU(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--swap-halves", "none")
	d := m.device(1)
	gi, ci, uuid := m.carve(d, "2g.10gb", 0)
	set, ret := m.EventSetCreate()
	m.want(ret, nvml.SUCCESS, "EventSetCreate")
	defer set.Free()
	m.want(d.RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.SUCCESS, "RegisterEvents")
	_, ret = set.Wait(0)
	m.want(ret, nvml.ERROR_TIMEOUT, "Wait")

	m.ctl("xid", "1", "13", "3")
	event, ret := set.Wait(5000)
	m.want(ret, nvml.SUCCESS, "Wait")
	if event.EventData != 13 || event.GpuInstanceId != 3 {
		t.Errorf("the event is %+v, want Xid 13 of GPU instance 3", event)
	}
	m.ctl("lose", "1")
	event, ret = set.Wait(5000)
	m.want(ret, nvml.SUCCESS, "Wait")
	if event.EventData != 79 || event.EventType != nvml.EventTypeXidCriticalError {
		t.Errorf("the event is %+v, want Xid 79", event)
	}
	_, ret = set.Wait(5000)
	m.want(ret, nvml.ERROR_GPU_IS_LOST, "Wait on a lost GPU")
	_, ret = m.DeviceGetHandleByIndex(1)
	m.want(ret, nvml.ERROR_GPU_IS_LOST, "DeviceGetHandleByIndex")
	_, ret = m.DeviceGetHandleByUUID(uuid)
	m.want(ret, nvml.ERROR_GPU_IS_LOST, "DeviceGetHandleByUUID")
	m.want(ci.Destroy(), nvml.ERROR_GPU_IS_LOST, "destroy")
	if _, ret := m.DeviceGetHandleByIndex(0); ret != nvml.SUCCESS {
		t.Errorf("a call for the other GPU returned %v", ret)
	}
	m.ctl("find", "1")
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
}

// TestDrift checks that NVML reports the names and memory sizes of profiles that `nvml-emulator drift` has changed, as
// a new driver may do.
func TestDrift(t *testing.T) {
	m := newMachine(t, "--board", "GB200-186GB")
	d := m.device(0)
	m.ctl("drift", "--profile", "1g.23gb", "--name", "1g.24gb", "--memory", "24000")
	info := m.profile(d, "1g.24gb")
	if info.MemorySizeMB != 24000 {
		t.Errorf("the profile has %d MiB, want 24000", info.MemorySizeMB)
	}
	m.carve(d, "1g.24gb", 0)
	mem, ret := m.migDevices(d)[0].GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	if mem.Total != 24000<<20 {
		t.Errorf("the MIG device has %d bytes, want 24000 MiB", mem.Total)
	}
	m.ctl("drift", "--profile", "1g.23gb")
	m.profile(d, "1g.23gb")
}

// TestLatency checks that a call takes at least its latency. It checks no upper bound, because the additional time
// depends on the machine.
func TestLatency(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	m.ctl("latency", "--call", "CREATE_GI", "40")
	began := time.Now()
	_, ret := m.placeByID(d, 19, 0)
	m.want(ret, nvml.SUCCESS, "create")
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("the call took %v, want at least 40ms", took)
	}
	m.ctl("latency", "off")
	m.ctl("latency", "realistic")
	began = time.Now()
	gi, ci, uuid := m.carve(d, "1g.5gb", 1)
	if took := time.Since(began); took < 160*time.Millisecond {
		t.Errorf("the creation of a 1g.5gb took %v, want at least 160ms", took)
	}
	m.carve(d, "1g.5gb", 2)
	info := m.profile(d, "1g.5gb")
	whole, ret := gi.GetComputeInstanceProfileInfo(0, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	m.want(ret, nvml.SUCCESS, "GetComputeInstanceProfileInfo")
	for what, call := range map[string]struct {
		ms int
		do func() nvml.Return
	}{
		"GetGpuInstances":           {4, func() nvml.Return { _, ret := d.GetGpuInstances(&info); return ret }},
		"GetGpuInstanceById":        {4, func() nvml.Return { _, ret := d.GetGpuInstanceById(8); return ret }},
		"GetComputeInstances":       {4, func() nvml.Return { _, ret := gi.GetComputeInstances(&whole); return ret }},
		"GetComputeInstanceById":    {4, func() nvml.Return { _, ret := gi.GetComputeInstanceById(0); return ret }},
		"GetMigDeviceHandleByIndex": {4, func() nvml.Return { _, ret := d.GetMigDeviceHandleByIndex(0); return ret }},
		"DeviceGetHandleByUUID":     {8, func() nvml.Return { _, ret := m.DeviceGetHandleByUUID(uuid); return ret }},
	} {
		want, began := time.Duration(20*call.ms)*time.Millisecond, time.Now()
		for range 20 { // a single call could take as long without a latency
			m.want(call.do(), nvml.SUCCESS, what)
		}
		if took := time.Since(began); took < want {
			t.Errorf("20 calls of %s took %v, want at least %v", what, took, want)
		}
	}
	began = time.Now()
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("the destruction took %v, want at least 200ms", took)
	}
}

func TestWrongUsage(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"", 2, "nvml-emulator init"},
		{"--help", 0, "Exit status"},
		{"init --help", 0, "RTX-PRO-6000-96GB"},
		{"latency --help", 0, "CREATE_GI"},
		{"carve", 2, "unknown command"},
		{"init --board A1000", 2, "unknown board"},
		{"init --gpus 2", 2, "--board"},
		{"create 5 1g.5gb", 2, "GPU must be"},
		{"create 0 9g.90gb", 1, "no profile"},
		{"create 0 2g.10gb 1", 1, "Invalid Argument"},
		{"destroy 0 7", 1, "no instance 7"},
		{"fault add --call CREATE_GI", 2, "--error"},
		{"fault add --call CREATE_GI --error NONSENSE", 2, "unknown error"},
		{"fault add --call MEMORY --kill torn", 2, "--kill"},
		{"fault add --call RESET --activation IN_USE", 2, "SET_MIG_MODE"},
		{"fault add --call SET_MIG_MODE --activation IN_USE --error UNKNOWN", 2, "one of --error"},
		{"fault add --call SET_MIG_MODE --activation SUCCESS", 2, "unknown error"},
		{"init --board A100-40GB --mode-reset soon", 2, "auto, manual or never"},
		{"init --board A100-40GB --gpus 2 --nvlink 0,2", 2, "2 GPUs"},
		{"init --board A100-40GB --gpus 2 --nvlink 0,1,", 2, "--nvlink"},
		{"init --board A100-40GB --gpus 2 --nvlink 0,1x", 2, "--nvlink"},
		{"init --board A100-40GB --gpus 2 --nvlink 0-1", 2, "--nvlink"},
		{"mig-mode 0 maybe", 2, "on or off"},
		{"reboot now", 2, "no arguments"},
		{"hold 0 7", 1, "no instance 7"},
		{"hold 1", 2, "GPU must be"},
		{"latency soon", 2, "realistic"},
		{"lock x", 2, "seconds"},
	} {
		out, status := m.exit(m.command("nvml-emulator", strings.Fields(c.args)...))
		if status != c.status || !strings.Contains(out, c.says) {
			t.Errorf("nvml-emulator %s: exit status %d, want %d and %q:\n%s", c.args, status, c.status, c.says, out)
		}
	}
}
