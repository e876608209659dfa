package nvmlemulator_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// cuda returns the command of a cuda-process on the MIG device.
func (m *machine) cuda(uuid string, args ...string) *exec.Cmd {
	cmd := m.command("cuda-process", args...)
	cmd.Env = append(
		slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") }),
		"CUDA_VISIBLE_DEVICES="+uuid,
	)
	return cmd
}

// running starts a cuda-process, waits until the process uses its device, and returns the line that the process prints.
func (m *machine) running(cmd *exec.Cmd) string {
	m.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		m.Fatalf("couldn't read the line of cuda-process: %v", err)
	}
	return line
}

func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

func TestProcess(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	gi, ci, uuid := m.carve(d, "2g.10gb", 2)
	cmd := m.cuda(uuid, "--memory", "700", "--seconds", "3600", "--print")
	line := m.running(cmd)
	if want := fmt.Sprintf("uuid=%s gpu=0 gi=4 profile=2g.10gb start=2 memory_mib=9856\n", uuid); line != want {
		t.Errorf("--print printed %q, want %q", line, want)
	}
	mig := m.migDevices(d)[0]
	for _, where := range []nvml.Device{mig, d} {
		procs, ret := where.GetComputeRunningProcesses()
		m.want(ret, nvml.SUCCESS, "GetComputeRunningProcesses")
		if len(procs) != 1 || int(procs[0].Pid) != cmd.Process.Pid || procs[0].GpuInstanceId != 4 ||
			procs[0].ComputeInstanceId != 0 {
			t.Errorf("GetComputeRunningProcesses returned %+v", procs)
		}
	}
	m.want(ci.Destroy(), nvml.ERROR_IN_USE, "destroy a compute instance in use")
	m.want(gi.Destroy(), nvml.ERROR_IN_USE, "destroy a GPU instance in use")
	if out, status := m.exit(m.command("nvml-emulator", "reset", "0")); status != 1 {
		t.Errorf("reset of a GPU in use: exit status %d, want 1\n%s", status, out)
	}

	// Processes without --exclusive can share the device.
	out, status := m.exit(m.cuda(uuid, "--memory", "300"))
	if status != 0 {
		t.Errorf("a second process: exit status %d, want 0\n%s", status, out)
	}
	out, status = m.exit(m.cuda(uuid, "--exclusive"))
	if status != 4 || !strings.Contains(out, "another process") {
		t.Errorf("--exclusive: exit status %d, want 4\n%s", status, out)
	}

	// After kill -9, the process is no longer a client, even before its parent has reaped it. With WNOWAIT, it remains
	// a zombie.
	cmd.Process.Signal(syscall.SIGKILL)
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if procs, ret := mig.GetComputeRunningProcesses(); ret != nvml.SUCCESS || len(procs) != 0 {
		t.Errorf("after kill -9, GetComputeRunningProcesses returned %+v and %v", procs, ret)
	}
	if mem, _ := mig.GetMemoryInfo(); mem.Used != 0 {
		t.Errorf("after kill -9, %d bytes are in use", mem.Used)
	}
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy after kill -9")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy after kill -9")
	cmd.Wait()
	gone := slices.ContainsFunc(m.log(), func(e event) bool {
		return e.name == "process-gone" && e.at["pid"] == fmt.Sprint(cmd.Process.Pid) && e.at["uuid"] == uuid
	})
	if !gone {
		t.Error("the log contains no process-gone event of the killed process")
	}
}

func TestManyProcesses(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	_, _, uuid := m.carve(d, "3g.20gb", 0)
	for range 3 {
		m.running(m.cuda(uuid, "--memory", "1000", "--seconds", "3600", "--print"))
	}
	// go-nvml's first call has room for one process, and returns ERROR_INSUFFICIENT_SIZE.
	procs, ret := m.migDevices(d)[0].GetComputeRunningProcesses()
	m.want(ret, nvml.SUCCESS, "GetComputeRunningProcesses")
	if len(procs) != 3 {
		t.Errorf("GetComputeRunningProcesses returned %d processes, want 3", len(procs))
	}
}

func TestMemoryCurve(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	_, _, uuid := m.carve(m.device(0), "1g.5gb", 0)
	m.running(m.cuda(uuid, "--curve", "0:100,0.1:900", "--seconds", "3600", "--print"))
	mig := m.migDevices(m.device(0))[0]
	for used := uint64(0); used != 900; {
		mem, ret := mig.GetMemoryInfo()
		m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
		if mem.Used>>20 < used || mem.Used>>20 > 900 {
			t.Fatalf("the memory use changed from %d to %d MiB, but the curve rises to 900", used, mem.Used>>20)
		}
		used = mem.Used >> 20
	}
}

func TestOutOfMemory(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	_, _, uuid := m.carve(d, "1g.5gb", 0)
	for _, args := range [][]string{{"--memory", "4865"}, {"--curve", "0:500,0.2:9000"}} {
		out, status := m.exit(m.cuda(uuid, args...))
		if status != 1 || !strings.Contains(out, "CUDA out of memory") {
			t.Errorf("%v: exit status %d, want 1 and \"CUDA out of memory\"\n%s", args, status, out)
		}
	}
	if out, status := m.exit(m.cuda(uuid, "--memory", "4864")); status != 0 {
		t.Errorf("a process that uses all memory: exit status %d, want 0\n%s", status, out)
	}
	// The processes on a slice share its memory.
	m.running(m.cuda(uuid, "--memory", "0", "--seconds", "3600", "--print"))
	holder := m.cuda(uuid, "--memory", "3000", "--seconds", "3600", "--print")
	m.running(holder)
	for used := uint64(0); used != 3000<<20; {
		mem, ret := m.migDevices(d)[0].GetMemoryInfo()
		m.want(ret, nvml.SUCCESS, "GetMemoryInfo")
		used = mem.Used
	}
	if out, status := m.exit(m.cuda(uuid, "--memory", "2000")); status != 1 {
		t.Errorf("2000 MiB while 3000 of 4864 MiB are in use: exit status %d, want 1\n%s", status, out)
	}
	oom := 0
	for _, e := range m.log() {
		if e.name == "process-oom" {
			oom++
		}
	}
	if oom != 3 {
		t.Errorf("the log contains %d process-oom events, want 3", oom)
	}
}

func TestProcessIsRefused(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2")
	_, _, a := m.carve(m.device(0), "1g.5gb", 0)
	_, _, b := m.carve(m.device(1), "1g.5gb", 0)
	gpu, _ := m.device(0).GetUUID()
	for _, visible := range []string{"", "0", "0,1", a + "," + b, gpu, "MIG-00000000-0000-0000-0000-000000000000",
		a[:12]} {
		if out, status := m.exit(m.cuda(visible)); status != 3 || out == "" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: exit status %d, want 3 and a message\n%s", visible, status, out)
		}
	}
	if out, status := m.exit(m.cuda(a, "--expect", "2g.10gb")); status != 5 || !strings.Contains(out, "1g.5gb") {
		t.Errorf("--expect with another profile: exit status %d, want 5\n%s", status, out)
	}
	if out, status := m.exit(m.cuda(a, "--expect", "1g.5gb")); status != 0 {
		t.Errorf("--expect: exit status %d, want 0\n%s", status, out)
	}
	if out, status := m.exit(m.cuda(a, "--curve", "2:1,1:5")); status != 2 {
		t.Errorf("a curve with decreasing times: exit status %d, want 2\n%s", status, out)
	}
	m.ctl("lose", "0")
	if out, status := m.exit(m.cuda(a)); status != 3 {
		t.Errorf("a process on a lost GPU: exit status %d, want 3\n%s", status, out)
	}
}

// devRoot returns a new directory in which processes can open device files. This is not t.TempDir, because many systems
// mount /tmp with the nodev option.
func devRoot(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{built, "/var/tmp"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NODEV != 0 {
			continue
		}
		root, err := os.MkdirTemp(dir, "dev-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(root) })
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		return root
	}
	t.Skip("the directory of the build and /var/tmp are on mounts with nodev")
	panic("unreachable")
}

// TestDeviceFiles checks that the owner and the mode of the capability files determine which users can use a slice. The
// driver creates capability files with mode 0444, and the agent may change the mode.
func TestDeviceFiles(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--dev-root", root)
	cap := func(minor int) string { return filepath.Join(root, "nvidia-caps", fmt.Sprintf("nvidia-cap%d", minor)) }
	gi, ci, uuid := m.carve(m.device(0), "1g.5gb", 5) // GI 12
	for path, mode := range map[string]os.FileMode{
		cap(111): 0o444, cap(112): 0o444, cap(1): 0o400,
		filepath.Join(root, "nvidia1"): 0o666, filepath.Join(root, "nvidiactl"): 0o666,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode|os.ModeDevice|os.ModeCharDevice {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), mode)
		}
	}
	var sb syscall.Stat_t
	if err := syscall.Stat(cap(112), &sb); err != nil || sb.Rdev != 60<<8|112 {
		t.Errorf("the device number is %x (%v)", sb.Rdev, err)
	}
	if out, status := m.exit(asNobody(m.cuda(uuid, "--memory", "100"))); status != 0 {
		t.Fatalf("a user other than root, with mode 0444: exit status %d, want 0\n%s", status, out)
	}
	for _, closed := range []int{111, 112} {
		if err := os.Chmod(cap(closed), 0o400); err != nil {
			t.Fatal(err)
		}
		if out, status := m.exit(asNobody(m.cuda(uuid))); status != 3 || !strings.Contains(out, cap(closed)) {
			t.Errorf("a user who may not open %s: exit status %d, want 3\n%s", cap(closed), status, out)
		}
		if err := os.Chown(cap(closed), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if out, status := m.exit(asNobody(m.cuda(uuid))); status != 0 {
			t.Errorf("the owner of %s: exit status %d, want 0\n%s", cap(closed), status, out)
		}
	}
	m.check()
	m.want(ci.Destroy(), nvml.SUCCESS, "destroy")
	m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	for _, minor := range []int{111, 112} {
		if _, err := os.Lstat(cap(minor)); err != nil {
			t.Errorf("the driver does not remove the files of destroyed instances: %v", err)
		}
	}
	m.check()

	os.WriteFile(cap(200), nil, 0o444)
	m.carve(m.device(0), "7g.40gb", 0)
	os.Remove(cap(3))
	if out, status := m.exit(m.command("nvml-emulator", "check")); status != 1 ||
		!strings.Contains(out, cap(3)+" is missing") {
		t.Errorf("nvml-emulator check: exit status %d, want 1 and the missing file\n%s", status, out)
	}
}

// TestPermission checks that the calls that NVML's documentation marks with "requires privileged user" fail for users
// other than root.
func TestPermission(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	gi, ci, _ := m.carve(d, "1g.5gb", 0)
	info := m.profile(d, "1g.5gb")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	same, root, nobody := ^uintptr(0), uintptr(0), uintptr(65534)
	// The raw system call changes only the current thread, which also makes the NVML calls.
	syscall.RawSyscall(syscall.SYS_SETRESUID, same, nobody, same)
	defer syscall.RawSyscall(syscall.SYS_SETRESUID, same, root, same)
	_, ret := d.CreateGpuInstance(&info)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "CreateGpuInstance")
	_, ret = d.GetGpuInstances(&info)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "GetGpuInstances")
	_, ret = d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	m.want(ret, nvml.ERROR_NO_PERMISSION, "SetMigMode")
	m.want(ci.Destroy(), nvml.ERROR_NO_PERMISSION, "ComputeInstance.Destroy")
	m.want(gi.Destroy(), nvml.ERROR_NO_PERMISSION, "GpuInstance.Destroy")
	if _, ret := d.GetMemoryInfo(); ret != nvml.SUCCESS {
		t.Errorf("GetMemoryInfo returned %v", ret)
	}
}
