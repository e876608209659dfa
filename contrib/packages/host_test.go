//go:build e2e

package packages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/machine"
	"caelum/internal/node/api"
)

// hold is the script of a job that uses a slice until the end.NAME file exists, and fails if it loses the slice.
const hold = `#!/bin/bash
cuda-process --memory 1000 --seconds 3600 &
device=$!
until [[ -e end.$1 ]]; do
    kill -0 $device || { echo "the job lost its slice"; exit 1; }
    sleep 0.5
done
kill $device
`

// short holds the sbatch arguments for a job that ends soon.
const short = "--wrap 'cuda-process --memory 1000 --seconds 0.1 --print'"

// submitInterval is the interval between the short jobs that run, one after another, while the packages are replaced.
const submitInterval = 300 * time.Millisecond

// units lists the names of the units that the packages install.
var units = []string{"caelumd", "caelum-watch"}

// host is a booted machine on which dpkg has installed the packages.
type host struct {
	*machine.Machine
	t      *testing.T
	names  []string // the names of the packages
	jobs   []string // the jobs that hold slices; the script of jobs[k] has the argument k
	ended  int      // the number of leading elements of jobs that have ended
	slurmd string   // the pid of slurmd, which no package may restart
}

// start starts the units, which the installation must not have started, and submits the jobs.
func (h *host) start() {
	h.t.Helper()
	h.runtimeFiles()
	h.stopped()
	h.Must("systemctl", "enable", "--now", "caelumd", "caelum-watch", "slurmd")
	h.Serving()
	h.slurmd = h.Property("slurmd", "MainPID")
	h.User("printf %s " + quote(hold) + " >hold")
	for k := range holders {
		h.jobs = append(h.jobs, h.submit(fmt.Sprintf("hold %d", k)))
	}
	h.Within("the jobs use their slices", func() bool {
		leases := 0
		for _, l := range h.status().Leases {
			if len(l.Slices) == 1 && l.Slices[0].Use != nil && l.Slices[0].Use.MemoryMiB >= 1000 {
				leases++
			}
		}
		return leases == holders
	})
}

// stopped checks that systemd has loaded the units, but has neither enabled nor started them.
func (h *host) stopped() {
	h.t.Helper()
	for _, unit := range units {
		if state := h.unit(unit); state != "disabled inactive" || h.Property(unit, "NeedDaemonReload") != "no" {
			h.t.Errorf("after the installation, %s is %s", unit, state)
		}
	}
}

// runtimeFiles checks the owners and modes of the directories that systemd-tmpfiles creates before an agent has run.
func (h *host) runtimeFiles() {
	h.t.Helper()
	for path, want := range map[string]string{
		"/run/caelum": "755 root root", "/run/caelum/jobs": "700 root root", "/run/softmig": "755 root root",
	} {
		if got := strings.TrimSpace(h.Try("stat", "-c", "%a %U %G", path)); got != want {
			h.t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}

// quote quotes a string for use in a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// submit submits a job for the smallest slice.
func (h *host) submit(script string) string {
	h.t.Helper()
	return h.User("sbatch --parsable --gres=gpu:1,mig:1g.5gb:1 " + script)
}

// unit returns a string that says whether a unit is enabled and active.
func (h *host) unit(name string) string {
	states := h.Try("systemctl", "is-enabled", name) + h.Try("systemctl", "is-active", name)
	return strings.Join(strings.Fields(states), " ")
}

func (h *host) status() (s api.Status) {
	h.t.Helper()
	out := h.Must("caelum", "status", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return s
}

// leases returns each job's lease as a string: its restart count, start time and slices.
func (h *host) leases() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	for _, l := range h.status().Leases {
		text := fmt.Sprintf("restart %d, since %d:", l.Restart, l.Since)
		for _, s := range l.Slices {
			text += fmt.Sprintf(" slot %d: %s at %d of GPU %d, %s", s.Slot, s.Profile, s.Start, s.GPU, s.UUID)
		}
		all[fmt.Sprint(l.Job)] = text
	}
	return all
}

// replace runs a dpkg command that replaces the packages, and submits jobs while the command runs. It checks that the
// jobs complete, that the command restarted the units and no others, and that all run afterwards.
func (h *host) replace(command string, restarted ...string) {
	h.t.Helper()
	pids := map[string]string{}
	for _, unit := range units {
		pids[unit] = h.Property(unit, "MainPID")
	}
	dpkg := h.Command("sh", "-c", command)
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		out, err := dpkg.CombinedOutput()
		done <- result{out, err}
	}()
	var jobs []string
	for running := true; running; {
		jobs = append(jobs, h.submit(short))
		select {
		case r := <-done:
			if running = false; r.err != nil {
				h.t.Fatalf("%s: %v: %s", command, r.err, r.out)
			}
		case <-time.After(submitInterval):
		}
	}
	for _, job := range jobs {
		h.completed(job)
	}
	h.t.Logf("%s: %d jobs were submitted meanwhile; no agent ran for %v", command, len(jobs), h.pause())
	for unit, pid := range pids {
		now := h.Property(unit, "MainPID")
		if (now != pid) != slices.Contains(restarted, unit) || h.unit(unit) != "enabled active" {
			h.t.Errorf("%s is %s; its pid was %s and is %s", unit, h.unit(unit), pid, now)
		}
	}
	h.audit()
}

// pause returns the time between the last stop of the agent and its last start.
func (h *host) pause() time.Duration {
	h.t.Helper()
	var at [2]int
	for k, name := range []string{"ActiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic"} {
		var err error
		if at[k], err = strconv.Atoi(h.Property("caelumd", name)); err != nil {
			h.t.Fatal(err)
		}
	}
	return time.Duration(at[1]-at[0]) * time.Microsecond
}

// refused checks that a dpkg command fails with the given text in its output, and that no daemon was restarted.
func (h *host) refused(text, command string) {
	h.t.Helper()
	agent := h.Property("caelumd", "MainPID")
	out, err := h.Command("sh", "-c", command).CombinedOutput()
	if err == nil || !strings.Contains(string(out), text) {
		h.t.Errorf("%s: no %q (%v): %s", command, text, err, out)
	}
	if now := h.Property("caelumd", "MainPID"); now != agent {
		h.t.Errorf("%s restarted the agent: its pid was %s and is %s", command, agent, now)
	}
}

// audit checks that no package is in an intermediate state according to dpkg, and that slurmd is still running.
func (h *host) audit() {
	h.t.Helper()
	if out := h.Must("dpkg", "--audit"); out != "" {
		h.t.Errorf("dpkg --audit: %s", out)
	}
	if pid := h.Property("slurmd", "MainPID"); pid != h.slurmd {
		h.t.Errorf("slurmd was restarted: its pid was %s and is %s", h.slurmd, pid)
	}
}

// serves checks that the agent has the given version, and that all jobs that have not ended are running with unchanged
// leases. It also checks that a new step gets the slice of its job, and that a new job gets a slice.
func (h *host) serves(version string, before map[string]string) {
	h.t.Helper()
	h.Within("the agent publishes", func() bool {
		return strings.Contains(h.Try("caelum", "status"), "on offer: 1g.5gb")
	})
	if now := h.status().Version; now != version {
		h.t.Errorf("the agent has version %s, not %s", now, version)
	}
	now := h.leases()
	for _, job := range h.jobs[h.ended:] {
		if now[job] != before[job] || h.State(job) != "RUNNING" {
			h.t.Errorf("job %s is %s; its lease was %q and is %q", job, h.State(job), before[job], now[job])
		}
	}
	if h.ended < len(h.jobs) {
		h.step(h.jobs[h.ended], before)
	}
	job := h.submit(short)
	h.completed(job)
	if out := h.Must("cat", "/home/user1/slurm-"+job+".out"); !strings.Contains(out, "uuid=MIG-") {
		h.t.Errorf("job %s printed %s", job, out)
	}
}

// step checks that a new step of a running job gets the slice in the job's lease.
func (h *host) step(job string, before map[string]string) {
	h.t.Helper()
	out := h.User("srun --overlap --jobid " + job + " cuda-process --memory 100 --seconds 0.1 --print")
	_, uuid, _ := strings.Cut(out, "uuid=")
	if uuid, _, _ = strings.Cut(uuid, " "); uuid == "" || !strings.Contains(before[job], uuid) {
		h.t.Errorf("a step of job %s has the slice %q, and the lease was %s", job, out, before[job])
	}
}

// completes ends the next n jobs, and checks that they complete and that their leases end.
func (h *host) completes(n int, before map[string]string) {
	h.t.Helper()
	last := min(h.ended+n, len(h.jobs))
	for k := h.ended; k < last; k++ {
		h.User(fmt.Sprintf("touch end.%d", k))
	}
	for ; h.ended < last; h.ended++ {
		h.completed(h.jobs[h.ended])
	}
	h.Within("the ended jobs have no leases", func() bool { return len(h.leases()) == len(before)-h.ended })
}

func (h *host) completed(job string) {
	h.t.Helper()
	h.Within("job "+job+" ends", func() bool {
		state := h.State(job)
		return state != "PENDING" && state != "RUNNING" && state != "COMPLETING"
	})
	if state := h.State(job); state != "COMPLETED" {
		h.t.Errorf("job %s is %s: %s", job, state, h.Try("cat", "/home/user1/slurm-"+job+".out"))
	}
}
