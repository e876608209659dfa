package nvmlemulator_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

func (m *machine) wantMode(d nvml.Device, current, pending int) {
	m.Helper()
	c, p, ret := d.GetMigMode()
	m.want(ret, nvml.SUCCESS, "GetMigMode")
	if c != current || p != pending {
		m.Errorf("MIG mode %d, pending %d; want %d and %d", c, p, current, pending)
	}
}

const (
	off = nvml.DEVICE_MIG_DISABLE
	on  = nvml.DEVICE_MIG_ENABLE
)

// TestSetMigMode checks the return code and the activation status of a MIG mode change, and the mode after it. It then
// runs a command, and rechecks the mode.
func TestSetMigMode(t *testing.T) {
	success, inUse, mustReset := nvml.SUCCESS, nvml.ERROR_IN_USE, nvml.ERROR_RESET_REQUIRED
	for _, c := range []struct {
		name             string
		init             string   // the GPU model and other arguments of init
		setup            []string // commands before the change
		mode             int
		ret, activation  nvml.Return
		current, pending int
		then             []string // commands after the change
		at               [2]int   // the modes after the commands
	}{
		{"Ampere resets itself", "A100-40GB --mig off", nil, on, success, success, on, on, nil, [2]int{on, on}},
		{"Ampere resets itself to leave", "A30-24GB", nil, off, success, success, off, off, nil, [2]int{off, off}},
		{"Ampere with a client", "A100-40GB --mig off", []string{"hold 0"}, on, success, inUse, off, on,
			[]string{"unhold 0", "reset 0"}, [2]int{on, on}},
		{"Ampere with a client that stays", "A100-40GB", []string{"hold 0"}, off, success, inUse, on, off,
			[]string{"!reset 0"}, [2]int{on, off}},
		{"Ampere without resets by the driver", "A100-40GB --mig off --mode-reset manual", nil, on, success, mustReset,
			off, on, []string{"reset 0"}, [2]int{on, on}},
		{"Ampere in a virtual machine", "A100-40GB --mig off --mode-reset never", nil, on, success, mustReset, off, on,
			[]string{"reboot"}, [2]int{on, on}},
		{"Ampere with an instance", "A100-40GB", []string{"create 0 1g.5gb"}, off, inUse, success, on, on,
			[]string{"destroy 0 13"}, [2]int{on, on}},
		{"Ampere with another GPU in use", "A100-40GB --gpus 2 --mig off", []string{"hold 1"}, on, success, success,
			on, on, nil, [2]int{on, on}},
		{"Ampere keeps the mode over a reboot", "A100-40GB --mig off", nil, on, success, success, on, on,
			[]string{"reboot"}, [2]int{on, on}},
		{"Hopper changes without a reset", "H100-80GB --mig off --mode-reset never", nil, on, success, success, on, on,
			nil, [2]int{on, on}},
		{"Hopper changes without a reset to leave", "H200-141GB", nil, off, success, success, off, off, nil,
			[2]int{off, off}},
		{"Hopper with a client", "H100-80GB --mig off", []string{"hold 0"}, on, success, inUse, off, on,
			[]string{"unhold 0", "mig-mode 0 on"}, [2]int{on, on}},
		{"Hopper with an instance", "B200-180GB", []string{"create 0 1g.23gb"}, off, inUse, success, on, on,
			nil, [2]int{on, on}},
		{"Hopper loses the mode at a reboot", "RTX-PRO-6000-96GB --mig off", nil, on, success, success, on, on,
			[]string{"reboot"}, [2]int{off, off}},
		{"the same mode with an instance", "A100-40GB", []string{"create 0 1g.5gb"}, on, success, success, on, on, nil,
			[2]int{on, on}},
		{"the current mode cancels a pending mode", "A100-40GB", []string{"mig-mode 0 off"}, on, success, success,
			on, on, []string{"reset 0"}, [2]int{on, on}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, append([]string{"--board"}, strings.Fields(c.init)...)...)
			m.script(c.setup)
			d := m.device(0)
			activation, ret := d.SetMigMode(c.mode)
			m.want(ret, c.ret, "SetMigMode")
			m.want(activation, c.activation, "activation status")
			m.wantMode(m.device(0), c.current, c.pending)
			m.check()
			m.script(c.then)
			m.wantMode(m.device(0), c.at[0], c.at[1])
			m.check()
		})
	}
}

// script runs control commands. A command that begins with an exclamation mark must be refused.
func (m *machine) script(commands []string) {
	m.Helper()
	for _, command := range commands {
		words := strings.Fields(strings.TrimPrefix(command, "!"))
		if words[0] == "create" && len(words) == 3 {
			words = append(words, "6")
		}
		if !strings.HasPrefix(command, "!") {
			m.ctl(words...)
		} else if out, status := m.exit(m.command("nvml-emulator", words...)); status != 1 {
			m.Fatalf("%s: exit status %d\n%s", command, status, out)
		}
	}
}

// TestMigModeWithoutCapability checks that root needs CAP_SYS_ADMIN to change the MIG mode, as in the driver.
func TestMigModeWithoutCapability(t *testing.T) {
	m := newMachine(t, "--board", "H100-80GB")
	d := m.device(0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, fewer [2]unix.CapUserData
	m.onThread(func() {
		if err := unix.Capget(&head, &all[0]); err != nil {
			t.Error(err)
			return
		}
		fewer = all
		fewer[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		if err := unix.Capset(&head, &fewer[0]); err != nil {
			t.Error(err)
			return
		}
		if _, ret := d.SetMigMode(off); ret != nvml.ERROR_NO_PERMISSION {
			t.Errorf("SetMigMode without CAP_SYS_ADMIN: %v", ret)
		}
	})
	m.wantMode(d, on, on)
}

// TestModeFaults checks the faults in a MIG mode change.
func TestModeFaults(t *testing.T) {
	success, unknown := nvml.SUCCESS, nvml.ERROR_UNKNOWN
	for _, c := range []struct {
		name, model, fault string
		ret, activation    nvml.Return
		current, pending   int
	}{
		{"the call fails", "A100-40GB", "--call SET_MIG_MODE --error UNKNOWN", unknown, success, on, on},
		{"the call fails after the change, before the reset", "A100-40GB",
			"--call SET_MIG_MODE --error UNKNOWN --after", unknown, success, on, off},
		{"the call fails after the change", "H100-80GB",
			"--call SET_MIG_MODE --error UNKNOWN --after", unknown, success, off, off},
		{"success with another status", "A100-40GB", "--call SET_MIG_MODE --activation IN_USE", success,
			nvml.ERROR_IN_USE, on, off},
		{"success with another status", "H100-80GB", "--call SET_MIG_MODE --activation RESET_REQUIRED", success,
			nvml.ERROR_RESET_REQUIRED, on, off},
		{"the reset fails", "A100-40GB", "--call RESET --error UNKNOWN", success, unknown, on, off},
		{"the reset has an effect although it fails", "A100-40GB", "--call RESET --error UNKNOWN --after", success,
			unknown, off, off},
	} {
		t.Run(c.model+": "+c.name, func(t *testing.T) {
			m := newMachine(t, "--board", c.model)
			d := m.device(0)
			m.ctl(append([]string{"fault", "add"}, strings.Fields(c.fault)...)...)
			activation, ret := d.SetMigMode(off)
			m.want(ret, c.ret, "SetMigMode")
			m.want(activation, c.activation, "activation status")
			m.wantMode(d, c.current, c.pending)
			m.check()
			activation, ret = d.SetMigMode(off)
			m.want(ret, nvml.SUCCESS, "SetMigMode again")
			m.want(activation, nvml.SUCCESS, "activation status")
			m.wantMode(d, off, off)
		})
	}
}

func TestGPULostAtReset(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	set, ret := m.EventSetCreate()
	m.want(ret, nvml.SUCCESS, "EventSetCreate")
	defer set.Free()
	m.want(d.RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.SUCCESS, "RegisterEvents")
	m.ctl("fault", "add", "--call", "RESET", "--error", "GPU_IS_LOST")
	activation, ret := d.SetMigMode(off)
	m.want(ret, nvml.SUCCESS, "SetMigMode")
	m.want(activation, nvml.ERROR_GPU_IS_LOST, "activation status")
	_, _, ret = d.GetMigMode()
	m.want(ret, nvml.ERROR_GPU_IS_LOST, "GetMigMode")
	event, ret := set.Wait(5000)
	m.want(ret, nvml.SUCCESS, "Wait")
	if event.EventData != 79 {
		t.Errorf("event %+v", event)
	}
	m.ctl("find", "0")
	m.wantMode(d, on, off)
}

// TestKilledModeChange kills a process at each point of a change of the MIG mode. The state must be that from
// before or after the step, the log must agree with the state, and a second change must succeed. With -short, it kills
// the process only in the middle of each step.
func TestKilledModeChange(t *testing.T) {
	for _, c := range []struct {
		model, call, at  string
		mode             string
		current, pending int
	}{
		{"A100-40GB", "SET_MIG_MODE", "before", "mig-off", on, on},
		{"A100-40GB", "SET_MIG_MODE", "torn", "mig-off", on, on},
		{"A100-40GB", "SET_MIG_MODE", "after", "mig-off", on, off},
		{"A100-40GB", "RESET", "before", "mig-off", on, off},
		{"A100-40GB", "RESET", "torn", "mig-off", on, off},
		{"A100-40GB", "RESET", "after", "mig-off", off, off},
		{"A30-24GB", "SET_MIG_MODE", "before", "mig-on", off, off},
		{"A30-24GB", "SET_MIG_MODE", "torn", "mig-on", off, off},
		{"A30-24GB", "SET_MIG_MODE", "after", "mig-on", off, on},
		{"A30-24GB", "RESET", "before", "mig-on", off, on},
		{"A30-24GB", "RESET", "torn", "mig-on", off, on},
		{"A30-24GB", "RESET", "after", "mig-on", on, on},
		{"H100-80GB", "SET_MIG_MODE", "before", "mig-off", on, on},
		{"H100-80GB", "SET_MIG_MODE", "torn", "mig-off", on, on},
		{"H100-80GB", "SET_MIG_MODE", "after", "mig-off", off, off},
		{"B200-180GB", "SET_MIG_MODE", "before", "mig-on", off, off},
		{"B200-180GB", "SET_MIG_MODE", "torn", "mig-on", off, off},
		{"B200-180GB", "SET_MIG_MODE", "after", "mig-on", on, on},
	} {
		t.Run(c.model+" "+c.call+" "+c.at, func(t *testing.T) {
			if testing.Short() && c.at != "torn" {
				t.Skip("starts three processes; runs without -short")
			}
			initial, final := "on", off
			if c.mode == "mig-on" {
				initial, final = "off", on
			}
			m := newMachine(t, "--board", c.model, "--mig", initial)
			m.ctl("xid", "0", "13") // the call fills both copies of the state
			m.ctl("fault", "add", "--call", c.call, "--kill", c.at)
			cmd := m.start(c.mode)
			cmd.Run()
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
				t.Fatalf("the process ended with %v", cmd.ProcessState)
			}
			m.wantMode(m.device(0), c.current, c.pending)
			m.check()
			logged := initial
			for _, e := range m.log() {
				logged = e.at["mig"]
			}
			if current := map[int]string{off: "off", on: "on"}[c.current]; logged != current {
				t.Errorf("the log shows MIG %s, the GPU has MIG %s", logged, current)
			}
			if out, err := m.start(c.mode).CombinedOutput(); err != nil || string(out) != "Success, Success\n" {
				t.Errorf("the next change returned %q, %v", out, err)
			}
			m.wantMode(m.device(0), final, final)
			m.check()
		})
	}
}

// TestClientOpensGPUBeforeReset checks that a client that opens the GPU between the two steps of a change prevents the
// reset.
func TestClientOpensGPUBeforeReset(t *testing.T) {
	m := newMachine(t, "--board", "A100-40GB")
	d := m.device(0)
	m.ctl("latency", "--call", "RESET", "2000")
	done := make(chan [2]nvml.Return)
	go func() {
		activation, ret := d.SetMigMode(off)
		done <- [2]nvml.Return{ret, activation}
	}()
	for pending := on; pending == on; {
		_, pending, _ = d.GetMigMode()
	}
	m.ctl("hold", "0")
	if got := <-done; got != [2]nvml.Return{nvml.SUCCESS, nvml.ERROR_IN_USE} {
		t.Errorf("SetMigMode: %v", got)
	}
	m.wantMode(d, on, off)
}

// TestModeLatency checks that a MIG mode change takes at least its latency.
func TestModeLatency(t *testing.T) {
	for _, c := range []struct {
		model string
		least time.Duration
	}{{"A100-40GB", 70 * time.Millisecond}, {"H100-80GB", 30 * time.Millisecond}} {
		m := newMachine(t, "--board", c.model)
		d := m.device(0)
		m.ctl("latency", "--call", "SET_MIG_MODE", "30")
		m.ctl("latency", "--call", "RESET", "40")
		began := time.Now()
		_, ret := d.SetMigMode(off)
		m.want(ret, nvml.SUCCESS, "SetMigMode")
		if took := time.Since(began); took < c.least {
			t.Errorf("%s: %v", c.model, took)
		}
	}
}
