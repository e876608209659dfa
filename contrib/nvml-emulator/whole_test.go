package nvmlemulator_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func (m *machine) gpuUUID(i int) string {
	m.Helper()
	uuid, ret := m.device(i).GetUUID()
	m.want(ret, nvml.SUCCESS, "GetUUID")
	return uuid
}

// TestVisibleDevices checks which GPUs cuda-process uses for a value of CUDA_VISIBLE_DEVICES. U0 to U3 stand for the
// GPUs' UUIDs. MIG mode is on for GPU 3, which has one MIG device (M).
func TestVisibleDevices(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "4", "--mig", "off", "--seed", "7")
	m.ctl("mig-mode", "3", "on")
	m.ctl("reset", "3")
	_, _, mig := m.carve(m.device(3), "1g.5gb", 0)
	var names []string
	for i := range 4 {
		names = append(names, fmt.Sprintf("U%d", i), m.gpuUUID(i))
	}
	names = append(names, "P1", m.gpuUUID(1)[:12], "M", mig)
	for _, c := range []struct {
		visible string
		status  int
		gpus    string // the GPUs in the printed lines
		says    string
	}{
		{"0", 0, "0", ""},
		{"2,0", 0, "2 0", ""},
		{"U1", 0, "1", ""},
		{"U2,U0,U1", 0, "2 0 1", ""},
		{"P1", 0, "1", ""},
		{"0,2,-1,1", 0, "0 2", "invalid entry \"-1\""},
		{"1,7,0", 0, "1", "invalid entry \"7\""},
		{"U0,GPU-00000000-0000-0000-0000-000000000000,U1", 0, "0", "invalid entry"},
		{"0,U1", 0, "0", "invalid entry"},
		{"U1,0", 0, "1", "invalid entry"},
		{"0,", 0, "0", "invalid entry"},
		{"", 3, "", "no CUDA-capable device"},
		{"-1", 3, "", "no CUDA-capable device"},
		{"4", 3, "", "no CUDA-capable device"},
		{"x", 3, "", "no CUDA-capable device"},
		{"GPU-", 3, "", "no CUDA-capable device"},
		{"0,0", 3, "", "twice"},
		{"U1,U1", 3, "", "twice"},
		{"3", 3, "", "MIG mode is on for GPU 3"},
		{"0,3", 3, "", "MIG mode is on for GPU 3"},
		{"U3", 3, "", "MIG mode is on for GPU 3"},
		{"M", 0, "3", ""},
		{"M,U0", 3, "", "one MIG UUID or only whole GPUs"},
		{"U0,M", 3, "", "one MIG UUID or only whole GPUs"},
		{"0,M", 3, "", "one MIG UUID or only whole GPUs"},
		{"M,M", 3, "", "one MIG UUID or only whole GPUs"},
	} {
		t.Run(c.visible, func(t *testing.T) {
			out, status := m.exit(m.cuda(strings.NewReplacer(names...).Replace(c.visible), "--print"))
			var gpus []string
			for line := range strings.Lines(out) {
				if _, rest, ok := strings.Cut(line, " gpu="); ok {
					gpus = append(gpus, strings.Fields(rest)[0])
				}
			}
			if got := strings.Join(gpus, " "); status != c.status || got != c.gpus || !strings.Contains(out, c.says) {
				t.Errorf("exit status %d, GPUs %q:\n%s", status, got, out)
			}
		})
	}
	m.ctl("lose", "1")
	if out, status := m.exit(m.cuda("0,1")); status != 3 || !strings.Contains(out, "GPU 1 is lost") {
		t.Errorf("with a lost GPU: exit status %d\n%s", status, out)
	}
	if out, status := m.exit(m.cuda("0", "--expect", "1g.5gb")); status != 5 || !strings.Contains(out, "whole GPU") {
		t.Errorf("--expect: exit status %d\n%s", status, out)
	}
	m.check()
}

// TestProcessOnWholeGPUs checks what NVML reports about a process on two GPUs without MIG, and that the process
// prevents a reset and a MIG mode change.
func TestProcessOnWholeGPUs(t *testing.T) {
	for _, model := range []string{"A100-40GB", "H100-80GB"} {
		t.Run(model, func(t *testing.T) {
			m := newMachine(t, "--board", model, "--gpus", "3", "--mig", "off")
			cmd := m.cuda("2,0", "--memory", "700", "--util", "0.426", "--seconds", "3600", "--print")
			line := m.running(cmd)
			total, ret := m.device(2).GetMemoryInfo()
			m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
			if want := fmt.Sprintf("uuid=%s gpu=2 memory_mib=%d\n", m.gpuUUID(2), total.Total>>20); line != want {
				t.Errorf("--print: %q, want %q", line, want)
			}
			for gpu, used := range []uint64{700, 0, 700} {
				m.checkWholeGPU(gpu, used, cmd.Process.Pid)
			}
			activation, ret := m.device(0).SetMigMode(on)
			m.want(ret, nvml.SUCCESS, "SetMigMode")
			m.want(activation, nvml.ERROR_IN_USE, "activation status")
			m.wantMode(m.device(0), off, on)
			out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "2"))
			if status != 255 || !strings.Contains(out, fmt.Sprintf("process %d (cuda-process)", cmd.Process.Pid)) {
				t.Errorf("nvidia-smi: exit status %d\n%s", status, out)
			}
			if model == "H100-80GB" {
				m.script([]string{"!mig-mode 0 on"})
			}
			if out, status := m.exit(m.cuda("0,1", "--exclusive")); status != 4 {
				t.Errorf("--exclusive: exit status %d\n%s", status, out)
			}
			m.check()
			m.wantEnd(cmd)
			activation, ret = m.device(0).SetMigMode(on)
			m.want(ret, nvml.SUCCESS, "SetMigMode")
			m.want(activation, nvml.SUCCESS, "activation status")
			m.check()
		})
	}
}

// checkWholeGPU checks what NVML reports about a GPU without MIG, which the process uses if used is not 0.
func (m *machine) checkWholeGPU(gpu int, used uint64, pid int) {
	m.Helper()
	d := m.device(gpu)
	mem, ret := d.GetMemoryInfo()
	m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
	util, ret := d.GetUtilizationRates()
	m.want(ret, nvml.SUCCESS, "GetUtilizationRates")
	procs, ret := d.GetComputeRunningProcesses()
	m.want(ret, nvml.SUCCESS, "GetComputeRunningProcesses")
	for mem.Used>>20 != used { // the process sets its memory after the registration
		if mem.Used != 0 {
			m.Fatalf("GPU %d: %d MiB are in use, want %d", gpu, mem.Used>>20, used)
		}
		mem, _ = d.GetMemoryInfo()
	}
	if used == 0 {
		if util.Gpu != 0 || len(procs) != 0 {
			m.Errorf("GPU %d: %+v, %+v", gpu, util, procs)
		}
		return
	}
	if util.Gpu != 43 || len(procs) != 1 || int(procs[0].Pid) != pid || procs[0].GpuInstanceId != 0xFFFFFFFF ||
		procs[0].ComputeInstanceId != 0xFFFFFFFF {
		m.Errorf("GPU %d: %+v, %+v", gpu, util, procs)
	}
}

// wantEnd kills a process on GPUs 0 and 2, and checks that the log has its end on both GPUs.
func (m *machine) wantEnd(cmd *exec.Cmd) {
	m.Helper()
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	var gone []string
	for _, e := range m.log() {
		if e.name == "process-gone" && e.at["pid"] == fmt.Sprint(cmd.Process.Pid) && e.at["gi"] == "-" {
			gone = append(gone, e.at["gpu"]+" "+e.at["uuid"])
		}
	}
	slices.Sort(gone)
	if want := []string{"0 " + m.gpuUUID(0), "2 " + m.gpuUUID(2)}; !slices.Equal(gone, want) {
		m.Errorf("process-gone %q, want %q", gone, want)
	}
}

func TestOutOfMemoryOnWholeGPUs(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--mig", "off")
	holder := m.cuda("1", "--memory", "30000", "--seconds", "3600", "--print")
	m.running(holder)
	m.checkMemory(1, 30000)
	if out, status := m.exit(m.cuda("0,1", "--memory", "10960")); status != 0 {
		t.Errorf("10960 MiB beside 30000 of 40960: exit status %d\n%s", status, out)
	}
	out, status := m.exit(m.cuda("0,1", "--memory", "10961"))
	if status != 1 || !strings.Contains(out, "CUDA out of memory") {
		t.Errorf("10961 MiB: exit status %d\n%s", status, out)
	}
	var last []string
	for _, e := range m.log() {
		if e.at["rc"] == "MEMORY" {
			last = append(last, e.name+" "+e.at["gpu"])
		}
	}
	if want := []string{"process-exit 0", "process-oom 1"}; !slices.Equal(last, want) {
		t.Errorf("log %q, want %q", last, want)
	}
	m.checkMemory(0, 0)
}

// checkMemory waits until processes use the given memory of the GPU, in MiB.
func (m *machine) checkMemory(gpu int, mib uint64) {
	m.Helper()
	for used := mib + 1; used != mib; {
		mem, ret := m.device(gpu).GetMemoryInfo()
		m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
		used = mem.Used >> 20
	}
}

// TestMIGCallsWithMIGOff checks the results of MIG calls for a GPU with MIG mode off, according to nvml.h.
func TestMIGCallsWithMIGOff(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	d := m.device(0)
	gi, ci, _ := m.carve(d, "1g.10gb", 0)
	info, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	m.want(ret, nvml.SUCCESS, "GetGpuInstanceProfileInfo")
	m.want(ci.Destroy(), nvml.SUCCESS, "ComputeInstance.Destroy")
	m.want(gi.Destroy(), nvml.SUCCESS, "GpuInstance.Destroy")
	_, ret = d.SetMigMode(off)
	m.want(ret, nvml.SUCCESS, "SetMigMode")
	results := map[string]nvml.Return{"GpuInstance.Destroy": gi.Destroy(), "ComputeInstance.Destroy": ci.Destroy()}
	_, results["GetGpuInstanceProfileInfo"] = d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	_, results["GetGpuInstanceProfileInfoV"] = d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_1_SLICE).V3()
	_, results["GetGpuInstancePossiblePlacements"] = d.GetGpuInstancePossiblePlacements(&info)
	_, results["GetGpuInstanceRemainingCapacity"] = d.GetGpuInstanceRemainingCapacity(&info)
	_, results["CreateGpuInstance"] = d.CreateGpuInstance(&info)
	_, results["GetGpuInstances"] = d.GetGpuInstances(&info)
	_, results["GetGpuInstanceById"] = d.GetGpuInstanceById(7)
	_, results["GetMaxMigDeviceCount"] = d.GetMaxMigDeviceCount()
	_, results["GetMigDeviceHandleByIndex"] = d.GetMigDeviceHandleByIndex(0)
	_, results["GetGpuInstanceId"] = d.GetGpuInstanceId()
	_, results["GetUtilizationRates"] = d.GetUtilizationRates()
	_, results["GetComputeRunningProcesses"] = d.GetComputeRunningProcesses()
	_, results["GetMemoryInfo"] = d.GetMemoryInfo()
	for call, want := range map[string]nvml.Return{
		"GetGpuInstanceProfileInfo":        nvml.SUCCESS, // "doesn't support MIG"
		"GetGpuInstanceProfileInfoV":       nvml.ERROR_NOT_SUPPORTED,
		"GetGpuInstancePossiblePlacements": nvml.SUCCESS, // "regardless of whether MIG is enabled or not"
		"GetGpuInstanceRemainingCapacity":  nvml.ERROR_NOT_SUPPORTED,
		"CreateGpuInstance":                nvml.ERROR_NOT_SUPPORTED,
		"GetGpuInstances":                  nvml.ERROR_NOT_SUPPORTED,
		"GetGpuInstanceById":               nvml.ERROR_NOT_SUPPORTED,
		"GpuInstance.Destroy":              nvml.ERROR_INVALID_ARGUMENT,
		"ComputeInstance.Destroy":          nvml.ERROR_INVALID_ARGUMENT,
		"GetMaxMigDeviceCount":             nvml.SUCCESS,
		"GetMigDeviceHandleByIndex":        nvml.ERROR_NOT_SUPPORTED,
		"GetGpuInstanceId":                 nvml.ERROR_NOT_SUPPORTED,
		"GetUtilizationRates":              nvml.SUCCESS,
		"GetComputeRunningProcesses":       nvml.SUCCESS,
		"GetMemoryInfo":                    nvml.SUCCESS,
	} {
		if results[call] != want {
			t.Errorf("%s: %v, want %v", call, results[call], want)
		}
	}
	if n, ret := m.DeviceGetCount(); ret != nvml.SUCCESS || n != 1 {
		t.Errorf("DeviceGetCount: %d, %v", n, ret)
	}
	m.want(m.migOn(d), nvml.SUCCESS, "SetMigMode")
	_, ret = d.GetUtilizationRates()
	m.want(ret, nvml.ERROR_NOT_SUPPORTED, "GetUtilizationRates with MIG on")
}

func (m *machine) migOn(d nvml.Device) nvml.Return {
	activation, ret := d.SetMigMode(on)
	if ret == nvml.SUCCESS {
		ret = activation
	}
	return ret
}
