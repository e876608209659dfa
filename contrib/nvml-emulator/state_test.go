package nvmlemulator_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// start runs the test binary as a second process that uses the emulated machine.
func (m *machine) start(mode string) *exec.Cmd {
	m.Helper()
	cmd := exec.Command(os.Args[0], library())
	cmd.Env = append(
		os.Environ(),
		"NVML_EMULATOR_TEST_HELPER="+mode,
		"NVML_EMULATOR_STATE="+filepath.Join(m.dir, "state"),
	)
	return cmd
}

// replay applies the log to an independent model. It checks that instances do not overlap, that destroyed instances
// existed, that no UUID occurs twice, and that times do not decrease. It returns the number of instances at the end of
// the log.
func (m *machine) replay() int {
	m.Helper()
	type slice struct{ start, end, cis int }
	standing := map[string]*slice{}
	uuids := map[string]bool{}
	var last int64
	for i, e := range m.log() {
		if e.ns < last {
			m.Fatalf("the time in line %d of the log is earlier than the time in the line before", i+1)
		}
		last = e.ns
		if e.at["rc"] != "SUCCESS" {
			continue
		}
		key := e.at["gpu"] + "/" + e.at["gi"]
		switch e.name {
		case "create-gi":
			start, _ := strconv.Atoi(e.at["start"])
			size, _ := strconv.Atoi(e.at["size"])
			for other, s := range standing {
				if strings.HasPrefix(other, e.at["gpu"]+"/") && start < s.end && s.start < start+size {
					m.Fatalf("line %d of the log: %s overlaps %s", i+1, key, other)
				}
			}
			standing[key] = &slice{start: start, end: start + size}
		case "create-ci":
			if standing[key] == nil || uuids[e.at["uuid"]] {
				m.Fatalf("line %d of the log: the GPU instance is missing or the UUID exists: %+v", i+1, e)
			}
			uuids[e.at["uuid"]] = true
			standing[key].cis++
		case "destroy-ci":
			if standing[key] == nil || standing[key].cis == 0 {
				m.Fatalf("line %d of the log: the compute instance does not exist: %+v", i+1, e)
			}
			standing[key].cis--
		case "destroy-gi":
			if standing[key] == nil || standing[key].cis != 0 {
				m.Fatalf("line %d of the log: the GPU instance is missing or in use: %+v", i+1, e)
			}
			delete(standing, key)
		}
	}
	return len(standing)
}

func (m *machine) instances(d nvml.Device) int {
	n := 0
	for id := range 15 {
		if _, ret := d.GetGpuInstanceById(id); ret == nvml.SUCCESS {
			n++
		}
	}
	return n
}

func TestRacingProcesses(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	var all []*exec.Cmd
	for range 3 {
		cmd := m.start("race")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("one of the racing processes failed: %v", err)
		}
	}
	m.check()
	if logged, present := m.replay(), m.instances(m.device(0)); logged != present {
		t.Errorf("the log contains %d instances, but the GPU has %d", logged, present)
	}
}

func TestKilledHolderOfTheLock(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	cmd := m.command("nvml-emulator", "lock", "3600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("nvml-emulator lock printed %q (%v), want \"locked\"", line, err)
	}
	done := make(chan nvml.Return, 1)
	d := make(chan nvml.Device, 1)
	go func() {
		dev, ret := m.DeviceGetHandleByIndex(0)
		d <- dev
		done <- ret
	}()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	<-d
	m.want(<-done, nvml.SUCCESS, "a call after the holder of the lock was killed")
}

// TestKilledWriter kills a process at each point of a change, and checks that either the whole change was made or none,
// and that the log agrees with the state.
func TestKilledWriter(t *testing.T) {
	for _, c := range []struct {
		at    string
		after int
	}{{"before", 0}, {"torn", 0}, {"after", 1}} {
		t.Run(c.at, func(t *testing.T) {
			m := newMachine(t, "--board", "A100-40GB", "--dev-root", filepath.Join(t.TempDir(), "dev"))
			m.ctl("create", "0", "3g.20gb", "4") // the call fills both copies of the state
			m.ctl("fault", "add", "--call", "CREATE_GI", "--kill", c.at)
			cmd := m.start("create")
			cmd.Run()
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
				t.Fatalf("the process ended with %v", cmd.ProcessState)
			}
			if n := m.instances(m.device(0)); n != 1+c.after {
				t.Errorf("the GPU has %d instances, want %d", n, 1+c.after)
			}
			if n := m.replay(); n != 1+c.after {
				t.Errorf("the log contains %d instances, want %d", n, 1+c.after)
			}
			out, err := m.start("create").CombinedOutput()
			if want := map[int]string{0: "Success", 1: "Insufficient Resources"}[c.after]; err != nil ||
				!strings.Contains(string(out), want) {
				t.Errorf("the next create returned %q, %v; want %s", out, err, want)
			}
			m.check()
		})
	}
}

func TestDamagedState(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	state := filepath.Join(m.dir, "state")
	good, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(f func(b []byte) []byte) []byte { return f(append([]byte(nil), good...)) }
	for _, c := range []struct {
		name string
		file []byte
		ret  nvml.Return
		says string
	}{
		{"empty", nil, nvml.ERROR_UNKNOWN, "not a state"},
		{"text", []byte(strings.Repeat("not a state\n", 9999)), nvml.ERROR_UNKNOWN, "not a state"},
		{"truncated", good[:len(good)/4], nvml.ERROR_UNKNOWN, "damaged"},
		{"header only", good[:16], nvml.ERROR_UNKNOWN, "damaged"},
		{"another version", damage(func(b []byte) []byte {
			b[8] = 99
			return b
		}), nvml.ERROR_LIB_RM_VERSION_MISMATCH, "format 99"},
		{"one byte of every 64", damage(func(b []byte) []byte {
			for i := 4096; i < len(b); i += 64 {
				b[i] ^= 0x40
			}
			return b
		}), nvml.ERROR_UNKNOWN, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(state, c.file, 0o666); err != nil {
				t.Fatal(err)
			}
			_, ret := m.DeviceGetCount()
			m.want(ret, c.ret, "DeviceGetCount")
			out, status := m.exit(m.command("nvml-emulator", "show"))
			if status != 3 || !strings.Contains(out, c.says) || !strings.Contains(out, "nvml-emulator init") {
				t.Errorf("nvml-emulator show: exit status %d, want 3, the cause and a remedy\n%s", status, out)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		if err := os.Remove(state); err != nil {
			t.Fatal(err)
		}
		_, ret := m.DeviceGetCount()
		m.want(ret, nvml.ERROR_DRIVER_NOT_LOADED, "DeviceGetCount")
	})
	t.Run("recreated", func(t *testing.T) {
		m.ctl("init", "--board", "A30-24GB", "--gpus", "2", "--dev-root", "none")
		if n, ret := m.DeviceGetCount(); ret != nvml.SUCCESS || n != 2 {
			t.Errorf("DeviceGetCount returned %d and %v, want 2", n, ret)
		}
	})
}

func TestUninitialized(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	m.want(m.Init(), nvml.SUCCESS, "a second Init")
	m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
	_, ret := d.GetUUID()
	m.want(ret, nvml.SUCCESS, "a call after two Inits and one Shutdown")
	m.want(m.Shutdown(), nvml.SUCCESS, "Shutdown")
	_, ret = d.GetUUID()
	m.want(ret, nvml.ERROR_UNINITIALIZED, "a call after the last Shutdown")
	m.want(m.Init(), nvml.SUCCESS, "Init again")
}

// TestFileOfKilledWriter checks that the next change of the state removes an access file that belongs to no instance,
// as left by a process that is killed between the commit and the removal of the file.
func TestFileOfKilledWriter(t *testing.T) {
	proc := t.TempDir()
	m := newMachine(t, "--board", "A100-40GB", "--dev-root", devRoot(t), "--proc-root", proc)
	left := filepath.Join(proc, "driver/nvidia/capabilities/gpu0/mig/gi13/access")
	if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	m.ctl("create", "0", "1g.5gb", "0")
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("the access file still exists: %v", err)
	}
	m.check()
}
