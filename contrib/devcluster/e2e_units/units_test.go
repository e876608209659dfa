//go:build e2e

package e2eunits

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limit is the time limit for every condition. It is generous, because only a test that hangs
// reaches it.
const limit = 60 * time.Second

// machine is a booted systemd.
type machine struct {
	t       *testing.T
	dir     string
	boot    *exec.Cmd
	ended   chan struct{} // is closed when the script boot has ended
	console bytes.Buffer
	pid     int // the pid of the machine's PID 1 outside its namespace
}

// boot boots a machine, waits until its node and its agent serve, and removes the machine at the end of the test.
func boot(t *testing.T) *machine {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(here, "../../../build")
	if from := os.Getenv("FAULTS_BUILD"); from != "" {
		build = from
	}
	m := &machine{t: t, ended: make(chan struct{})}
	if m.dir, err = os.MkdirTemp("", "units."); err != nil {
		t.Fatal(err)
	}
	m.boot = exec.Command("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--kill-child",
		filepath.Join(here, "boot"), m.dir, build)
	m.boot.Stdout, m.boot.Stderr = &m.console, &m.console
	m.boot.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := m.boot.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { m.boot.Wait(); close(m.ended) }()
	t.Cleanup(func() { m.remove(filepath.Join(here, "../lib/cgroup.sh")) })
	m.within("systemd runs", func() bool {
		select {
		case <-m.ended:
			t.Fatalf("boot ended:\n%s", m.console.String())
		default:
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.boot.Process.Pid))
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
		return m.pid != 0 && strings.TrimSpace(m.try("systemctl", "is-system-running")) == "running"
	})
	m.within(
		"the node serves",
		func() bool { return strings.HasPrefix(m.try("sinfo", "-h", "-n", "n1", "-o", "%T"), "idle") },
	)
	m.within(
		"the agent publishes",
		func() bool { return strings.Contains(m.try("caelum", "status"), "on offer: 1g.5gb") },
	)
	return m
}

// remove ends the machine and removes its folder and its cgroup. After a failure it logs the journal and the console.
func (m *machine) remove(cgroupScript string) {
	if m.t.Failed() {
		m.t.Log(m.try("systemctl", "--no-pager", "--plain", "list-units", "--state=failed,activating"))
		m.t.Log(
			m.try(
				"journalctl", "--no-pager", "--lines=80", "-u", "caelumd", "-u", "caelum-watch", "-u", "slurmd",
				"-u", "slurmctld",
			),
		)
	}
	m.boot.Process.Kill() // --kill-child ends PID 1, and with it all processes of the machine
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
		m.t.Errorf("the cgroup of %s is left: %v: %s", m.dir, err, out)
	}
	os.RemoveAll(m.dir)
}

func (m *machine) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	m.t.Cleanup(cancel)
	enter := []string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// try returns the output of a command, even if the command fails.
func (m *machine) try(args ...string) string {
	out, _ := m.command(args...).CombinedOutput()
	return string(out)
}

func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) within(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("not in time: %s", what)
		}
	}
}

// user runs a shell command as an ordinary user in the user's home.
func (m *machine) user(command string) string {
	m.t.Helper()
	return m.must(
		"setpriv", "--reuid=20001", "--regid=20001", "--clear-groups", "env", "--chdir=/home/user1",
		"HOME=/home/user1", "sh", "-c", command,
	)
}

func (m *machine) state(job string) string {
	return strings.TrimSpace(m.try("squeue", "-h", "-t", "all", "-j", job, "-o", "%T"))
}

func (m *machine) property(unit, name string) string {
	return m.must("systemctl", "show", "--property="+name, "--value", unit)
}

// exposure is the maximum exposure level of each unit according to `systemd-analyze security`, multiplied by ten.
var exposure = map[string]int{"caelumd": 30, "caelum-watch": 20}

func TestExposure(t *testing.T) {
	for unit, most := range exposure {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true",
			"--threshold="+strconv.Itoa(most), "../../../etc/"+unit+".service").
			CombinedOutput()
		if err != nil {
			t.Errorf("%s is rated above %d/10: %v\n%s", unit, most, err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// TestUnits runs jobs while agent and watcher run under the shipped units, and checks all functions that a restriction
// of the units could prevent.
func TestUnits(t *testing.T) {
	m := boot(t)
	submit := func(command string) string { return m.user("sbatch --parsable --gres=gpu:1 --wrap '" + command + "'") }

	job := submit(
		"until test -e end; do sleep 0.2; done; srun --overlap cuda-process --memory 1000 --seconds 0.1 --print",
	)
	m.within("job "+job+" runs", func() bool { return m.state(job) == "RUNNING" })
	// squeue shows RUNNING while the prolog still runs.
	m.within("the job's user owns the two capability files of her slice", func() bool {
		return len(strings.Fields(m.try("find", "/dev/nvidia-caps", "-user", "20001", "-perm", "0400"))) == 2
	})
	m.within(
		"the lease file of job "+job,
		func() bool { return m.try("stat", "-c", "%a", "/run/caelum/jobs/"+job) == "600\n" },
	)
	if access := m.must("sh", "-c", "cat /proc/driver/nvidia/capabilities/gpu0/mig/gi0/access"); !strings.Contains(
		access,
		"DeviceFileModify: 0",
	) {
		t.Errorf("the driver still manages the capability files: %s", access)
	}
	m.owners(job)

	// After the agent is killed, its offers are closed, a new agent starts, and the job keeps its slice.
	m.must("systemctl", "kill", "--signal=KILL", "caelumd")
	m.within("systemd starts the agent again", func() bool {
		return m.property("caelumd", "NRestarts") == "1" && m.property("caelumd", "ActiveState") == "active"
	})
	m.within("the agent answers", func() bool { return strings.Contains(m.try("caelum", "status"), "job "+job) })
	m.user("touch end")
	m.within("job "+job+" ends", func() bool { return m.state(job) != "RUNNING" && m.state(job) != "COMPLETING" })
	if state, out := m.state(job), m.must("cat", "/home/user1/slurm-"+job+".out"); state != "COMPLETED" ||
		!strings.Contains(out, "uuid=MIG-") {
		t.Errorf("the job is %s and printed %s", state, out)
	}

	// The watcher detects submissions, and reads the queue as SlurmUser.
	if log := m.must("journalctl", "--no-pager", "-u", "caelum-watch"); strings.Contains(log, "level=error") ||
		!strings.Contains(log, "watching") {
		t.Errorf("the watcher: %s", log)
	}
	if log := m.must("journalctl", "--no-pager", "-u", "caelumd"); strings.Contains(log, "ermission denied") ||
		strings.Contains(log, "not permitted") {
		t.Errorf("the agent lacks a permission: %s", log)
	}

	// After the agent is stopped permanently, no slice is offered.
	m.must("systemctl", "stop", "caelumd")
	gres := m.must("scontrol", "-d", "show", "node", "n1")
	for _, offered := range []string{"mig:1g.5gb:0", "mig:7g.40gb:0"} {
		if !strings.Contains(gres, offered) {
			t.Errorf("the agent is stopped, and %s is not in:\n%s", offered, gres)
		}
	}
	if result := m.property("caelumd", "Result"); result != "success" {
		t.Errorf("the agent's last result is %s", result)
	}
}

// owners checks the modes and owners of the files that agent and watcher make.
func (m *machine) owners(job string) {
	m.t.Helper()
	for path, want := range map[string]string{"/dev/caelum": "755 root", "/dev/caelum/slot0": "444 root",
		"/run/caelum": "755 root", "/run/caelum/jobs": "700 root",
		"/run/caelum/jobs/" + job: "600 root", "/run/caelum/caelumd.sock": "666 root",
		"/run/caelum/root.sock": "600 root",
		"/var/lib/caelum":       "700 root", "/var/lib/caelum/ledger.db": "600 root",
		"/var/lib/caelum/repo.db": "600 root", "/var/lib/caelum-watch": "700 slurm",
		"/var/lib/caelum-watch/repo.db": "600 slurm", "/run/caelum-watch": "700 slurm",
		"/run/caelum-watch/poke": "600 slurm"} {
		if got := m.must("stat", "-c", "%a %U", path); got != want {
			m.t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}

// TestRestrictions checks that the units' restrictions deny actions that the daemons do not need.
func TestRestrictions(t *testing.T) {
	m := boot(t)
	for unit, commands := range map[string][]string{
		"caelumd": {"touch /etc/caelum/x", "touch /usr/x", "touch /root/x", "mknod /dev/disk b 8 0",
			"mount -t tmpfs tmpfs /mnt", "unshare --user true", "chmod u+s /run/caelum",
			"hostname n1", "dmesg", "echo n1 >/proc/sys/kernel/hostname"},
		"caelum-watch": {"touch /etc/caelum/x", "touch /var/lib/x", "touch /root/x", "test -c /dev/caelum/slot0",
			"mknod /run/caelum-watch/n c 1 3", "unshare --user true",
			"chown 0 /run/caelum-watch/poke", "dmesg", "test -e /proc/1/status", "chmod u+s /run/caelum-watch"},
	} {
		for _, command := range commands {
			if out, err := m.under(unit, command); err == nil {
				t.Errorf("%s may %s: %s", unit, command, out)
			}
			m.must("sh", "-c", command) // the command works without the unit's restrictions
		}
	}
	for unit, commands := range map[string][]string{
		"caelumd": {"touch /run/caelum/x /var/lib/caelum/x", "mknod /dev/nvidia-caps/nvidia-cap999 c 60 999",
			"mknod /dev/caelum/slot999 c 42 999", "ls /proc/1/fd", "scontrol ping"},
		"caelum-watch": {"touch /run/caelum-watch/x /var/lib/caelum-watch/x", "scontrol ping",
			"cd /var/lib/caelum-watch && cp decisions .decisions-1 && mv .decisions-1 decisions && grep -q " +
				"partition /etc/caelum/decisions"},
	} {
		for _, command := range commands {
			if out, err := m.under(unit, command); err != nil {
				t.Errorf("%s may not %s: %v: %s", unit, command, err, out)
			}
		}
	}
}

// under runs a shell command once with the unit's settings instead of the daemon.
func (m *machine) under(unit, command string) (string, error) {
	name := "try-" + unit
	text := m.must(
		"sh",
		"-c",
		"cat /lib/systemd/system/"+unit+".service; sed 1d /etc/systemd/system/"+unit+".service.d/emulator.conf",
	)
	var kept []string
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "ExecStart",
			"ExecStopPost",
			"Restart",
			"RestartSec",
			"RuntimeDirectory",
			"StateDirectory",
			"WantedBy",
			"Type":
		default:
			if !strings.HasPrefix(line, "[Install]") {
				kept = append(kept, line)
			}
		}
	}
	file := strings.Join(
		kept,
		"",
	) + "\nReadWritePaths=-/run/caelum-watch -/var/lib/caelum-watch " +
		"-/var/lib/caelum\nType=oneshot\nExecStart=/bin/sh -c " + strconv.Quote(
		command,
	) + "\n"
	write := m.command("sh", "-c", "cat >/run/systemd/system/"+name+".service && systemctl daemon-reload")
	write.Stdin = strings.NewReader(file)
	if out, err := write.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	_, err := m.command("systemctl", "start", name).CombinedOutput()
	result := m.property(name, "ExecMainStatus")
	m.try("systemctl", "reset-failed", name)
	if err == nil && result != "0" {
		err = fmt.Errorf("exit status %s", result)
	}
	return m.try("journalctl", "--no-pager", "--lines=5", "-u", name), err
}
