package nvmlemulator_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// TestResetByNvidiaSmi checks the output and the exit status of nvidia-smi, and that a reset applies the pending MIG
// mode. In each case, the mode of GPU 0 is on and off is pending.
func TestResetByNvidiaSmi(t *testing.T) {
	for _, c := range []struct {
		name, init, setup, args string
		status                  int
		says                    string
		current                 int
	}{
		{"by index", "", "", "-r -i 0", 0, "GPU 00000000:10:00.0 was successfully reset.", off},
		{"by PCI bus id", "", "", "--gpu-reset --id=00000000:10:00.0", 0, "was successfully reset", off},
		{"by UUID", "--seed 7", "", "-i UUID --gpu-reset", 0, "was successfully reset", off},
		{"two GPUs", "", "", "-r -i 1,0", 0, "GPU 00000000:11:00.0 was successfully reset.", off},
		{"a client", "", "hold 0", "-r -i 0", 255, "GPU 00000000:10:00.0: In use by another client", on},
		{"the second of two GPUs has a client", "", "hold 1", "-r -i 0,1", 255, "00000000:11:00.0: In use", off},
		{"the driver does not reset the GPU itself", "--mode-reset manual", "", "-r -i 0", 0, "success", off},
		{"no reset in a virtual machine", "--mode-reset never", "", "-r -i 0", 3, "Not Supported", on},
		{"a lost GPU", "", "lose 0", "-r -i 0", 15, "GPU is lost", on},
		{"an instance disappears", "", "create 0 1g.5gb", "-r -i 0", 0, "success", off},
		{"no such index", "", "", "-r -i 2", 6, "No devices were found", on},
		{"no such bus", "", "", "-r -i 00000000:1F:00.0", 6, "No devices were found", on},
		{"a part of a UUID", "", "", "-r -i GPU-", 6, "No devices were found", on},
		{"no GPU given", "", "", "--gpu-reset", 2, "Usage", on},
		{"another option", "", "", "-q", 2, "invalid option", on},
		{"no option", "", "", "", 2, "Usage", on},
		{"help", "", "", "--help", 0, "Exit status", on},
		{"the reset fails", "", "fault add --call RESET --error UNKNOWN", "-r -i 0", 255, "Unknown Error", on},
		{"the reset fails after its effect", "", "fault add --call RESET --error UNKNOWN --after", "-r -i 0", 255,
			"Unknown Error", off},
		{"the GPU falls off the bus", "", "fault add --call RESET --error GPU_IS_LOST", "-r -i 0", 15, "GPU is lost",
			on},
		{"killed before the reset", "", "fault add --call RESET --kill before", "-r -i 0", -1, "", on},
		{"killed during the reset", "", "fault add --call RESET --kill torn", "-r -i 0", -1, "", on},
		{"killed after the reset", "", "fault add --call RESET --kill after", "-r -i 0", -1, "", off},
	} {
		t.Run(c.name, func(t *testing.T) {
			init := []string{"--board", "A100-40GB", "--gpus", "2"}
			m := newMachine(t, append(init, strings.Fields(c.init)...)...)
			uuid, ret := m.device(0).GetUUID()
			m.want(ret, nvml.SUCCESS, "GetUUID")
			m.ctl("mig-mode", "0", "off")
			if c.setup != "" {
				m.script([]string{c.setup})
			}
			args := strings.Fields(strings.ReplaceAll(c.args, "UUID", uuid))
			out, status := m.exit(m.command("nvidia-smi", args...))
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("exit status %d, want %d with %q:\n%s", status, c.status, c.says, out)
			}
			m.ctl("find", "0")
			m.wantMode(m.device(0), c.current, off)
			m.check()
		})
	}
}

func TestResetWithoutPermissionOrMachine(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	if out, status := m.exit(asNobody(m.command("nvidia-smi", "-r", "-i", "0"))); status != 4 ||
		!strings.Contains(out, "Permission") {
		t.Errorf("another user: exit status %d\n%s", status, out)
	}
	if err := os.Remove(filepath.Join(m.dir, "state")); err != nil {
		t.Fatal(err)
	}
	if out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "0")); status != 9 {
		t.Errorf("without a machine: exit status %d\n%s", status, out)
	}
}

func TestResetLatency(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	m.ctl("latency", "--call", "RESET", "60")
	began := time.Now()
	out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "0"))
	if took := time.Since(began); status != 0 || took < 60*time.Millisecond {
		t.Errorf("exit status %d after %v\n%s", status, took, out)
	}
}

// TestOpenDeviceFile checks that a process with a descriptor of the GPU's device file is a client of the GPU. The
// control device and the device files of other GPUs and machines do not make a process a client.
func TestOpenDeviceFile(t *testing.T) {
	root := devRoot(t)
	m := newMachine(t, "--board", "A100-40GB", "--gpus", "2", "--dev-root", root)
	other := filepath.Join(devRoot(t), "nvidia0")
	var sb unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "nvidia0"), &sb); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(other, unix.S_IFCHR|0o666, int(sb.Rdev)); err != nil {
		t.Fatal(err)
	}
	for path, blocks := range map[string]bool{
		filepath.Join(root, "nvidia0"):   true,
		filepath.Join(root, "nvidia1"):   false,
		filepath.Join(root, "nvidiactl"): false,
		other:                            false,
	} {
		m.holding(path, func(pid int) {
			out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "0"))
			named := strings.Contains(out, fmt.Sprintf("process %d (sleep)", pid))
			if (status == 255) != blocks || named != blocks {
				t.Errorf("%s: exit status %d\n%s", path, status, out)
			}
			activation, ret := m.device(0).SetMigMode(off)
			m.want(ret, nvml.SUCCESS, "SetMigMode")
			if (activation == nvml.ERROR_IN_USE) != blocks {
				t.Errorf("%s: activation status %v", path, activation)
			}
			m.device(0).SetMigMode(on)
		})
	}
	m.wantMode(m.device(0), on, on)
}

// holding runs f while another process has a descriptor of the file. The emulated device files have no driver, so that
// only O_PATH descriptors are possible.
func (m *machine) holding(path string, f func(pid int)) {
	m.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		m.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	cmd := exec.Command("sleep", "3600")
	cmd.ExtraFiles = []*os.File{file}
	err = cmd.Start()
	file.Close()
	if err != nil {
		m.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGKILL)
	f(cmd.Process.Pid)
}

// TestNVMLClients checks --nvml-clients: a process that has initialized NVML prevents a reset, and a change of the MIG
// mode by another process. The process can change the mode itself.
func TestNVMLClients(t *testing.T) {
	for _, c := range []struct {
		option       string
		reset        int    // the exit status of nvidia-smi
		changeByPeer string // the result of a change by another process
	}{{"0", 0, "Success, Success\n"}, {"1", 255, "Success, In use by another client\n"}} {
		t.Run(c.option, func(t *testing.T) {
			m := newMachine(t, "--board", "A100-40GB", "--dev-root", devRoot(t), "--nvml-clients", c.option)
			m.want(m.Init(), nvml.SUCCESS, "a second Init")
			m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
			if out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "0")); status != c.reset {
				t.Errorf("nvidia-smi: exit status %d\n%s", status, out)
			}
			if out, err := m.start("mig-off").CombinedOutput(); err != nil || string(out) != c.changeByPeer {
				t.Errorf("a change by another process: %q, %v", out, err)
			}
			m.want(m.migOn(m.device(0)), nvml.SUCCESS, "SetMigMode")
			activation, ret := m.device(0).SetMigMode(off)
			m.want(ret, nvml.SUCCESS, "SetMigMode")
			m.want(activation, nvml.SUCCESS, "activation status of the own change")
			m.wantMode(m.device(0), off, off)
			m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
			if out, status := m.exit(m.command("nvidia-smi", "-r", "-i", "0")); status != 0 {
				t.Errorf("nvidia-smi after Shutdown: exit status %d\n%s", status, out)
			}
		})
	}
}
