//go:build e2e

package e2eunits

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"caelum/contrib/devcluster/machine"
	"caelum/internal/node/api"
)

// exposure is the maximum exposure level of each unit, as rated by `systemd-analyze security` and multiplied by ten.
var exposure = map[string]int{"caelumd": 30, "caelum-watch": 20, "caelum-observe": 30}

func TestExposure(t *testing.T) {
	for unit, most := range exposure {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true",
			"--threshold="+strconv.Itoa(most), "../../../etc/"+unit+".service").
			CombinedOutput()
		if err != nil {
			t.Errorf("the exposure level of %s is above %d/10: %v\n%s", unit, most, err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// TestUnits runs jobs while systemd runs the agent and the watcher with the shipped units. It uses everything that the
// units' restrictions could prevent.
func TestUnits(t *testing.T) {
	m := machine.Boot(t, machine.Options{})
	order(t, m)
	submit := func(command string) string { return m.User("sbatch --parsable --gres=gpu:1 --wrap '" + command + "'") }

	job := submit(
		"until test -e end; do sleep 0.2; done; srun --overlap cuda-process --memory 1000 --seconds 0.1 --print",
	)
	m.Within("job "+job+" runs", func() bool { return m.State(job) == "RUNNING" })
	// The test waits for the capability files, because squeue shows RUNNING even while the prolog is running.
	m.Within("the job's user owns the two capability files of the slice", func() bool {
		return len(strings.Fields(m.Try("find", "/dev/nvidia-caps", "-user", "20001", "-perm", "0400"))) == 2
	})
	m.Within(
		"the lease file of job "+job,
		func() bool { return m.Try("stat", "-c", "%a", "/run/caelum/jobs/"+job) == "600\n" },
	)
	if access := m.Must("sh", "-c", "cat /proc/driver/nvidia/capabilities/gpu0/mig/gi0/access"); !strings.Contains(
		access,
		"DeviceFileModify: 0",
	) {
		t.Errorf("the driver still manages the capability files: %s", access)
	}
	owners(t, m, job)

	// After the agent is killed, systemd must close the offers and start a new agent, and the job must keep its slice.
	m.Must("systemctl", "kill", "--signal=KILL", "caelumd")
	m.Within("systemd has restarted the agent", func() bool {
		return m.Property("caelumd", "NRestarts") == "1" && m.Property("caelumd", "ActiveState") == "active"
	})
	m.Within("the agent answers", func() bool { return strings.Contains(m.Try("caelum", "status"), "job "+job) })
	m.User("touch end")
	m.Within("job "+job+" ends", func() bool { return m.State(job) != "RUNNING" && m.State(job) != "COMPLETING" })
	if state, out := m.State(job), m.Must("cat", "/home/user1/slurm-"+job+".out"); state != "COMPLETED" ||
		!strings.Contains(out, "uuid=MIG-") {
		t.Errorf("the job ended as %s and printed %s", state, out)
	}

	monitored(t, m)

	// The watcher must detect submissions, and read the queue as SlurmUser.
	if log := m.Must("journalctl", "--no-pager", "-u", "caelum-watch"); strings.Contains(log, "level=error") ||
		!strings.Contains(log, "watching") {
		t.Errorf("the watcher: %s", log)
	}
	// SlurmUser is not root here. munge authenticates the datagrams between the watcher and the agent.
	if log := m.Must("journalctl", "--no-pager", "-u", "caelum-watch", "-u", "caelumd"); !strings.Contains(
		log, "agent notified") || strings.Contains(log, "rejected datagrams") {
		t.Errorf("the agent or the watcher rejects notifications: %s", log)
	}
	if log := m.Must("journalctl", "--no-pager", "-u", "caelumd"); strings.Contains(log, "ermission denied") ||
		strings.Contains(log, "not permitted") {
		t.Errorf("the agent's log shows a missing permission: %s", log)
	}

	stopped(t, m)
}

// stopped checks that slurmctld has no offers after the agent is stopped.
func stopped(t *testing.T, m *machine.Machine) {
	t.Helper()
	m.Must("systemctl", "stop", "caelumd")
	gres := m.Must("scontrol", "-d", "show", "node", "n1")
	for _, offered := range []string{"mig:1g.5gb:0", "mig:7g.40gb:0"} {
		if !strings.Contains(gres, offered) {
			t.Errorf("after the stop of the agent, %s is not in the node's Gres:\n%s", offered, gres)
		}
	}
	if result := m.Property("caelumd", "Result"); result != "success" {
		t.Errorf("the Result of the agent's unit is %s", result)
	}
}

// monitored runs a job while the unit of a monitoring program holds an idle instance that overlaps the job's slice. The
// destroy hook, which runs with the restrictions of the agent's unit, must be able to stop and start this unit, and the
// job must be in the job map.
func monitored(t *testing.T, m *machine.Machine) {
	t.Helper()
	var status api.Status
	if err := json.Unmarshal([]byte(m.Must("caelum", "status", "--json")), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.GPUs) != 1 || len(status.GPUs[0].Instances) != 1 {
		t.Fatalf("want one idle instance: %+v", status.GPUs)
	}
	setUp := m.Command("sh", "-e", "-c", `
		cat >/etc/systemd/system/monitor.service <<-END
			[Service]
			ExecStart=sleep infinity
			ExecStopPost=nvml-emulator unhold 0 $0
		END
		cat >/etc/caelum/destroy-hook <<-'END'
			#!/bin/sh
			case $1 in
			pause) exec systemctl stop monitor ;;
			resume) exec systemctl start monitor ;;
			esac
		END
		chmod 755 /etc/caelum/destroy-hook
		printf '%s\n' 'job_map_dir: /run/caelum/jobmap' >>/etc/caelum/caelum.yaml
		printf '%s\n' 'destroy_hook: /etc/caelum/destroy-hook' >>/etc/caelum/caelum.yaml
		systemctl daemon-reload
		systemctl start monitor
		nvml-emulator hold 0 $0
		systemctl restart caelumd`, strconv.Itoa(status.GPUs[0].Instances[0].GI))
	if out, err := setUp.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	job := m.User("sbatch --parsable --gres=mig:3g.20gb:1 --wrap 'cat /run/caelum/jobmap/$CUDA_VISIBLE_DEVICES'")
	m.Within("job "+job+" ends", func() bool { return m.State(job) == "COMPLETED" })
	if out := m.Must("cat", "/home/user1/slurm-"+job+".out"); out != job+" 20001" {
		t.Errorf("the job map contained %q", out)
	}
	m.Within("the monitoring program runs", func() bool { return m.Property("monitor", "ActiveState") == "active" })
	log := m.Must("journalctl", "--no-pager", "-u", "caelumd")
	for _, action := range []string{"pause", "resume"} {
		if n := strings.Count(log, "called the destroy hook: "+action); n != 1 {
			t.Errorf("the agent called the hook to %s %d times", action, n)
		}
	}
	m.Within("the job map is empty", func() bool { return m.Try("ls", "-A", "/run/caelum/jobmap") == "" })
	if got := m.Must("stat", "-c", "%a %U", "/run/caelum/jobmap"); got != "755 root" {
		t.Errorf("/run/caelum/jobmap is %s", got)
	}
}

// order checks that systemd has started slurmd after the agent was ready.
func order(t *testing.T, m *machine.Machine) {
	t.Helper()
	if before := m.Property("caelumd", "Before"); !slices.Contains(strings.Fields(before), "slurmd.service") {
		t.Errorf("caelumd.service has Before=%s", before)
	}
	ready, err := strconv.Atoi(m.Property("caelumd", "ActiveEnterTimestampMonotonic"))
	if err != nil {
		t.Fatal(err)
	}
	started, err := strconv.Atoi(m.Property("slurmd", "ExecMainStartTimestampMonotonic"))
	if err != nil || ready == 0 || started < ready {
		t.Errorf("the agent was ready at %d us, and slurmd started at %d us (%v)", ready, started, err)
	}
}

// owners checks the modes and owners of the files that the agent and the watcher create.
func owners(t *testing.T, m *machine.Machine, job string) {
	t.Helper()
	for path, want := range map[string]string{"/dev/caelum": "755 root", "/dev/caelum/slot0": "444 root",
		"/run/caelum": "755 root", "/run/caelum/jobs": "700 root",
		"/run/caelum/jobs/" + job: "600 root", "/run/caelum/caelumd.sock": "666 root",
		"/run/caelum/root.sock": "600 root",
		"/var/lib/caelum":       "700 root", "/var/lib/caelum/ledger.db": "600 root",
		"/var/lib/caelum/repo.db": "600 root", "/var/lib/caelum-watch": "700 slurm",
		"/var/lib/caelum-watch/repo.db": "600 slurm", "/var/lib/caelum-watch/decisions": "644 slurm",
		"/run/caelum-watch": "700 slurm", "/run/caelum-watch/poke": "600 slurm"} {
		if got := m.Must("stat", "-c", "%a %U", path); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}

// TestRestrictions checks that the units' restrictions deny actions that the daemons do not need.
func TestRestrictions(t *testing.T) {
	m := machine.Boot(t, machine.Options{})
	for unit, commands := range map[string][]string{
		"caelumd": {"touch /etc/caelum/x", "touch /usr/x", "touch /root/x", "mknod /dev/disk b 8 0",
			"mount -t tmpfs tmpfs /mnt", "unshare --user true", "chmod u+s /run/caelum",
			"hostname n1", "dmesg", "echo n1 >/proc/sys/kernel/hostname",
			"mkdir /sys/fs/cgroup/x && rmdir /sys/fs/cgroup/x"},
		"caelum-watch": {"touch /etc/caelum/x", "touch /var/lib/x", "touch /root/x", "test -c /dev/caelum/slot0",
			"mknod /run/caelum-watch/n c 1 3", "unshare --user true",
			"chown 0 /run/caelum-watch/poke", "dmesg", "test -e /proc/1/status", "chmod u+s /run/caelum-watch"},
	} {
		for _, command := range commands {
			if out, err := under(t, m, unit, command); err == nil {
				t.Errorf("%s may %s: %s", unit, command, out)
			}
			m.Must("sh", "-c", command) // without the unit's restrictions, the command must succeed
		}
	}
	for unit, commands := range map[string][]string{
		"caelumd": {"touch /run/caelum/x /var/lib/caelum/x", "mknod /dev/nvidia-caps/nvidia-cap999 c 60 999",
			"mknod /dev/caelum/slot999 c 42 999", "ls /proc/1/fd", "scontrol ping", "touch /run/softmig/x",
			"mkdir /sys/fs/cgroup/system.slice/x && rmdir /sys/fs/cgroup/system.slice/x",
			": >>/sys/fs/cgroup/cgroup.subtree_control"},
		"caelum-watch": {"touch /run/caelum-watch/x /var/lib/caelum-watch/x", "scontrol ping",
			"cd /var/lib/caelum-watch && cp decisions .decisions-1 && mv .decisions-1 decisions && grep -q " +
				"partition /etc/caelum/decisions"},
	} {
		for _, command := range commands {
			if out, err := under(t, m, unit, command); err != nil {
				t.Errorf("%s may not %s: %v: %s", unit, command, err, out)
			}
		}
	}
}

// under runs a shell command with the settings of a unit, in place of the unit's daemon.
func under(t *testing.T, m *machine.Machine, unit, command string) (string, error) {
	name := "try-" + unit
	text := m.Must(
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
	write := m.Command("sh", "-c", "cat >/run/systemd/system/"+name+".service && systemctl daemon-reload")
	write.Stdin = strings.NewReader(file)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err := m.Command("systemctl", "start", name).CombinedOutput()
	result := m.Property(name, "ExecMainStatus")
	m.Try("systemctl", "reset-failed", name)
	if err == nil && result != "0" {
		err = fmt.Errorf("exit status %s", result)
	}
	return m.Try("journalctl", "--no-pager", "--lines=5", "-u", name), err
}
