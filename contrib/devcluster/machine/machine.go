package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// limit is the maximum time to wait for a condition. Only a test that hangs reaches it.
const limit = 5 * time.Minute

// Machine is a systemd instance that runs in its own namespaces.
type Machine struct {
	t       *testing.T
	dir     string
	boot    *exec.Cmd
	ended   chan struct{} // closed when boot has ended
	console bytes.Buffer
	pid     int // the pid of the machine's PID 1 in the test's PID namespace
}

// Options describes a machine.
type Options struct {
	GPUs int // the number of emulated 40 GB A100s, 1 by default
	// Packages is a directory with Caelum's deb packages, or empty. dpkg installs the packages before the boot, in
	// place of the files in build/, and systemd then starts neither slurmd nor Caelum's daemons. In the machine, the
	// directory and its subdirectories appear as /packages.
	Packages string
	// Command is the command that boots another machine, instead of the boot script, or nil. Its last argument will be
	// the machine's directory, whose base name is the name of its cgroup. The other options then do not count.
	Command []string
}

// Boot boots a machine and removes it at the end of the test. Without packages, it waits until the node accepts jobs
// and its agent offers slices.
func Boot(t *testing.T, o Options) *Machine {
	t.Helper()
	script, err := cluster.Script()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Dir(script)
	build := filepath.Join(here, "../../build")
	if from := os.Getenv("FAULTS_BUILD"); from != "" {
		build = from
	}
	m := &Machine{t: t, ended: make(chan struct{})}
	if m.dir, err = os.MkdirTemp("", "units."); err != nil {
		t.Fatal(err)
	}
	command := append(o.Command, m.dir)
	if o.Command == nil {
		command = []string{"unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--kill-child",
			filepath.Join(here, "machine/boot"), m.dir, build, strconv.Itoa(max(o.GPUs, 1)), o.Packages}
	}
	m.boot = exec.Command(command[0], command[1:]...)
	m.boot.Stdout, m.boot.Stderr = &m.console, &m.console
	m.boot.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := m.boot.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { m.boot.Wait(); close(m.ended) }()
	t.Cleanup(func() { m.remove(filepath.Join(here, "lib/cgroup.sh")) })
	m.Within("systemd runs", func() bool {
		select {
		case <-m.ended:
			t.Fatalf("boot ended:\n%s", m.console.String())
		default:
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.boot.Process.Pid))
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.pid))
		return string(name) == "systemd\n" && strings.TrimSpace(m.Try("systemctl", "is-system-running")) == "running"
	})
	if o.Packages == "" && o.Command == nil {
		m.Serving()
	}
	return m
}

// Serving waits until the node accepts jobs and its agent offers slices.
func (m *Machine) Serving() {
	m.t.Helper()
	m.Within(
		"the node accepts jobs",
		func() bool { return strings.HasPrefix(m.Try("sinfo", "-h", "-n", "n1", "-o", "%T"), "idle") },
	)
	m.Within(
		"the agent offers slices",
		func() bool { return regexp.MustCompile(`on offer: \d+g\.`).MatchString(m.Try("caelum", "status")) },
	)
}

// remove ends the machine and removes its directory and cgroup. If the test has failed, it logs the journal and the
// console.
func (m *Machine) remove(cgroupScript string) {
	if m.t.Failed() {
		m.t.Log(m.Try("systemctl", "--no-pager", "--plain", "list-units", "--state=failed,activating"))
		m.t.Log(
			m.Try(
				"journalctl", "--no-pager", "--lines=80", "-u", "caelumd", "-u", "caelum-watch", "-u", "slurmd",
				"-u", "slurmctld",
			),
		)
	}
	m.boot.Process.Kill() // --kill-child ends PID 1, and the kernel then ends all processes of the machine
	<-m.ended
	if m.t.Failed() {
		m.t.Logf("the console:\n%s", m.console.String())
	}
	remove := fmt.Sprintf(
		"source %s; for i in {1..100}; do remove_cgroups v2 %s 2>/dev/null && exit; sleep 0.1; done; exit 1",
		cgroupScript,
		filepath.Base(m.dir),
	)
	if out, err := exec.Command("bash", "-c", remove).CombinedOutput(); err != nil {
		m.t.Errorf("couldn't remove the cgroup of %s: %v: %s", m.dir, err, out)
	}
	os.RemoveAll(m.dir)
}

// Command returns a command that runs as root in the machine.
func (m *Machine) Command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	m.t.Cleanup(cancel)
	enter := []string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// Try returns the output of a command, even if it fails.
func (m *Machine) Try(args ...string) string {
	out, _ := m.Command(args...).CombinedOutput()
	return string(out)
}

// Must returns the output of a command and ends the test if the command fails.
func (m *Machine) Must(args ...string) string {
	m.t.Helper()
	out, err := m.Command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Within waits until a condition is true.
func (m *Machine) Within(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("the condition did not become true in time: %s", what)
		}
	}
}

// User runs a shell command as an ordinary user, in the user's home directory.
func (m *Machine) User(command string) string {
	m.t.Helper()
	return m.Must(
		"setpriv", "--reuid=20001", "--regid=20001", "--clear-groups", "env", "--chdir=/home/user1",
		"HOME=/home/user1", "sh", "-c", command,
	)
}

// State returns a job's state according to squeue.
func (m *Machine) State(job string) string {
	return strings.TrimSpace(m.Try("squeue", "-h", "-t", "all", "-j", job, "-o", "%T"))
}

// Property returns the value of a property of a systemd unit.
func (m *Machine) Property(unit, name string) string {
	return m.Must("systemctl", "show", "--property="+name, "--value", unit)
}
