package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"caelum/internal/config"
	"caelum/internal/node/gpu"
	"caelum/internal/node/usage"
)

func TestStrangeness(t *testing.T) {
	const job, uid = 12, 1000
	for _, c := range []struct {
		name    string
		cgroups string
		uid     uint32
		slurm   bool // proctrack/cgroup
		want    string
	}{
		{"of the job, v2", "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", uid, true, ""},
		{"of the job, several slurmds",
			"/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_special", uid, true, ""},
		{"of the job, v1", "/user.slice /slurm/uid_1000/job_12/step_0", uid, true, ""},
		{"of the job, v1, several slurmds", "/slurm_n1/uid_1000/job_12/step_0/task_0 /", uid, true, ""},
		{"of the job, with a user id of a container",
			"/system.slice/slurmstepd.scope/job_12/step_0/user", 100000, true, ""},
		{"of another job of the user", "/system.slice/slurmstepd.scope/job_13/step_0/user", uid, true, "of job 13"},
		{"of another job, v1", "/slurm/uid_1000/job_121/step_0", uid, false, "of job 121"},
		{"of the user and no job", "/user.slice/user-1000.slice/session-1.scope", uid, true, "of no job"},
		{"in a cgroup that the user made",
			"/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_12", uid, true, "of no job"},
		{"the same, v1 names", "/user.slice/user@1000.service/slurm/uid_1000/job_12", uid, true, "of no job"},
		{"at the root, where Slurm makes no job cgroups", "/job_12", uid, true, "of no job"},
		{"no cgroups, the user's", "/", uid, false, ""},
		{"no cgroups, another user's", "/", 1001, false, "of a user other than the job's (uid 1000)"},
		{"named by SLUID, the user's", "/system.slice/slurmstepd.scope/s1A2B3C/step_0", uid, true, ""},
		{"named by SLUID, another user's", "/system.slice/slurmstepd.scope/s1A2B3C/step_0", 1001, true,
			"of a user other than the job's (uid 1000)"},
		{"a number too large", "/system.slice/slurmstepd.scope/job_99999999999/step_0", uid, true, ""},
		{"slurmstepd before it moves", "/system.slice/slurmstepd.scope", uid, true, "of no job"},
	} {
		p := gpu.Process{UIDs: [4]uint32{c.uid, c.uid, c.uid, c.uid}}
		if got := strangeness(p, strings.Fields(c.cgroups), job, uid, c.slurm); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// computes starts a process that computes on a slice. The emulated /proc shows the process with the given user and
// cgroup.
func (h *held) computes(uuid string, uid int, cgroup string, options ...string) (pid int, ended chan error) {
	h.t.Helper()
	options = append([]string{"--seconds", "3600", "--print"}, options...)
	cmd := exec.Command(filepath.Join(h.node.Build(), "cuda-process"), options...)
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		h.t.Fatalf("cuda-process: %v", err)
	}
	pid, ended = cmd.Process.Pid, make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	h.t.Cleanup(func() { cmd.Process.Kill() })
	h.process(pid, uid)
	file := filepath.Join(h.proc, fmt.Sprint(pid), "cgroup")
	if err := os.WriteFile(file, []byte("0::"+cgroup+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return pid, ended
}

// TestStranger checks that the agent logs a foreign process once and shows it in the status. It must end the process
// only if foreign_processes says so, and must never end one of root's.
func TestStranger(t *testing.T) {
	const otherJob = "/system.slice/slurmstepd.scope/job_999999/step_0"
	for _, c := range []struct {
		name, foreign  string
		uid            int
		cgroup         string
		strange, ended bool
	}{
		{"reported", config.ForeignReport, 20002, "/", true, false},
		{"of another user", config.ForeignKillOthers, 20002, "/", true, true},
		{"of the user's other job, by default", config.ForeignKillOthers, 20001, otherJob, true, false},
		{"ended", config.ForeignKill, 20002, "/", true, true},
		{"of the user's other job", config.ForeignKill, 20001, otherJob, true, true},
		{"the user's", config.ForeignKill, 20001, "/", false, false},
		{"root's", config.ForeignKill, 0, "/", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHeld(t, 1)
			h.agent.cfg.Foreign = c.foreign
			id := h.startNow("2g.10gb:1")
			slice := h.lease(id).Slices[0]
			pid, ended := h.computes(slice.UUID, c.uid, c.cgroup)
			sampler := h.agent.usage.Sampler(0)
			sampler.Sample()
			note := fmt.Sprintf("leased: used by pid %d, uid %d", pid, c.uid)
			if got := strings.Contains(h.note(), note); got != c.strange {
				t.Errorf("status: %q", h.note())
			}
			sampler.Sample()
			want := 0
			if c.strange {
				want = 1
			}
			if n := strings.Count(h.logged(), fmt.Sprintf("is using its slice: pid %d", pid)); n != want {
				t.Errorf("logged %d times:\n%s", n, h.logged())
			}
			if c.ended {
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
					t.Errorf("the process ended with %v", err)
				}
				sampler.Sample()
				if h.note() != "" {
					t.Errorf("status after its end: %q", h.note())
				}
				return
			}
			if len(ended) > 0 || strings.Contains(h.logged(), "killed a process") {
				t.Errorf("the process was ended:\n%s", h.logged())
			}
		})
	}
}

// TestStrangerPidTakenOver checks that the agent does not end a later process that has the pid of a foreign process.
func TestStrangerPidTakenOver(t *testing.T) {
	h := newHeld(t, 1)
	id := h.startNow("2g.10gb:1")
	slice := h.lease(id).Slices[0]
	pid, ended := h.computes(slice.UUID, 20002, "/")
	h.agent.usage.Sampler(0).Sample()
	in := h.agent.node.Held(id, slice)
	u := usage.Slice{GPU: 0, Instance: h.agent.node.HardwareOf(in)}
	s := in.Strangers[pid]
	s.Start++
	h.agent.endStrangers(u, []gpu.Process{s.Process}, id, 20001)
	if len(ended) > 0 || strings.Contains(h.logged(), "killed a process") {
		t.Error("another process was ended")
	}
	h.agent.endStrangers(u, []gpu.Process{in.Strangers[pid].Process}, id, 20001)
	if err := <-ended; err == nil {
		t.Error("the stranger was not ended")
	}
}

// setuid changes the user ids of a process in the emulated /proc to root, except for the real user id.
func (h *held) setuid(pid int) {
	h.t.Helper()
	path := filepath.Join(h.proc, fmt.Sprint(pid), "status")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(
			path,
			[]byte(strings.Replace(string(text), "\t20001\t20001\t20001\t20001", "\t20001\t0\t0\t0", 1)),
			0o644,
		)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// setuid selects the user ids of a setuid-root program that user 20001 started.
const setuid = -20001

// TestHolderEnded checks a process of the last user that keeps a slice open. The agent must end it before another job
// gets the slice, but by default only if Slurm confines jobs to their devices. It must not end a process of another
// user, who may have been sent the descriptor by the last user.
func TestHolderEnded(t *testing.T) {
	for _, c := range []struct {
		name, foreign string
		constrain     string
		uid           int
		ended         bool
	}{
		{"by default", config.ForeignKillOthers, "yes", 20001, true},
		{"another user's", config.ForeignKillOthers, "yes", 20002, false},
		{"without ConstrainDevices", config.ForeignKillOthers, "no", 20001, false},
		{"kill, without ConstrainDevices", config.ForeignKill, "no", 20001, true},
		{"kill, another user's", config.ForeignKill, "yes", 20002, false},
		{"report", config.ForeignReport, "yes", 20001, false},
		{"a setuid program's", config.ForeignKillOthers, "yes", setuid, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHeld(t, 1)
			h.fake.SetConfig("TaskPlugin", "task/cgroup")
			h.fake.SetConfig("ConstrainDevices", c.constrain)
			h.agent.cfg.Foreign = c.foreign
			id := h.startNow("2g.10gb:1")
			file := h.file(h.lease(id).Slices[0])
			sleep := exec.Command("sleep", "3600")
			if err := sleep.Start(); err != nil {
				t.Fatal(err)
			}
			gone := make(chan bool)
			go func() {
				sleep.Wait()
				os.RemoveAll(filepath.Join(h.proc, fmt.Sprint(sleep.Process.Pid)))
				close(gone)
			}()
			h.process(sleep.Process.Pid, max(c.uid, -c.uid), [2]string{file})
			if c.uid == setuid {
				h.setuid(sleep.Process.Pid)
			}
			h.fake.Finish(id)
			h.fake.RunEpilogs()
			if got := strings.Contains(h.logged(), "killed a process"); got != c.ended {
				t.Errorf("ended is %v:\n%s", got, h.logged())
			}
			if !c.ended {
				if h.stuck() != 1 {
					t.Errorf("%d stuck", h.stuck())
				}
				sleep.Process.Kill()
			}
			<-gone
			if err := h.agent.compareGPUs(); err != nil || h.stuck() != 0 {
				t.Errorf("%d stuck afterwards, %v", h.stuck(), err)
			}
		})
	}
}
