//go:build e2e

package e2efaults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/failpoint"
)

// TestMove fills one unit of n1 and all but one unit of n2 with small jobs, and then submits a job that needs a whole
// GPU. The watcher must not touch any of them until the user of the job on n1 permits moves. It must then requeue this
// job, so that the waiting job starts on n1 and the moved job restarts on n2. The watcher is killed when it has written
// all tags, and the next watcher must continue the move.
func TestMove(t *testing.T) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("moves-%d", os.Getpid()))
	command := filepath.Join(dir, "move-command")
	s := start(t, cluster.Options{
		Dir: dir, Nodes: 2, GPUs: 1, AgentConfig: moveConfig(t, command),
		AgentEnv: []string{"CAELUM_FAILPOINT=" + failpoint.PreemptTagged + ":2"},
	})
	if err := os.WriteFile(command, []byte("#!/bin/sh\necho $1 $2 >>$0.calls\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var fixed []string
	for range 7 {
		fixed = append(fixed, s.Submit("sleep 900", "-w", "n2", "--gres=mig:1g.5gb:1", "-t", "30"))
	}
	s.Running(fixed...)
	movable := s.Submit("sleep 900", "--gres=mig:1g.5gb:1", "-t", "30", "--requeue")
	s.Running(movable)
	s.Must("", "root", "scancel", fixed[6])
	fixed = fixed[:6]
	whole := s.Submit("sleep 900", "--gres=mig:7g.40gb:1", "-t", "30")
	time.Sleep(75 * time.Second) // with moves_per_day: 1440, the first move may begin a minute after the start
	if log, err := s.Log("watcher"); err != nil || strings.Contains(log, `"preemptor":`) {
		t.Errorf("the watcher moves a job whose user does not permit moves (%v)", err)
	}
	s.Must("", user, "scontrol", "update", "job="+movable, "comment=caelum:movable")
	began := time.Now()
	s.Within("job "+whole+" runs", func() bool { return s.State(whole) == "RUNNING" })
	t.Logf("the waiting job runs after %.1f s", time.Since(began).Seconds())
	explained := s.Must("", "root", "caelum", "explain", movable)
	if !strings.Contains(explained, "The job was moved") || !strings.Contains(explained, "job "+whole) {
		t.Errorf("caelum explain %s: %s", movable, explained)
	}
	s.Within("the moved job runs", func() bool { return s.Lives(movable) == "RUNNING" })
	t.Logf("the moved job runs after %.1f s", time.Since(began).Seconds())
	for id, want := range map[string]string{movable: "1 n2", whole: "0 n1", fixed[0]: "0 n2", fixed[5]: "0 n2"} {
		job := s.Must("", "root", "scontrol", "show", "job", id)
		restarts, node, _ := strings.Cut(want, " ")
		if !strings.Contains(job, " Restarts="+restarts+" ") || !strings.Contains(job, " NodeList="+node+"\n") {
			t.Errorf("job %s: want %s restarts, on %s:\n%s", id, restarts, node, job)
		}
	}
	s.Within("move_command is called", func() bool {
		calls, _ := os.ReadFile(command + ".calls")
		return string(calls) == fmt.Sprintf("before %[1]s\nafter %[1]s\n", movable)
	})
	sacct := s.Must("", "root", "sacct", "-n", "-P", "-X", "-D", "-j", movable, "-o", "State,AdminComment%200")
	t.Logf("sacct:\n%s", sacct)
	if runs := strings.Split(sacct, "\n"); len(runs) != 2 || !strings.HasPrefix(runs[0], "REQUEUED|") ||
		!strings.Contains(runs[0], "caelum:moved="+whole+":0") {
		t.Errorf("sacct shows %q", runs)
	}
	if log, err := s.Log("watcher"); err != nil || strings.Count(log, `"step":"stop"`) != 1 {
		t.Errorf("the watcher logged %d stops, %v", strings.Count(log, `"step":"stop"`), err)
	}
	s.Must("", "root", "scancel", "-u", user)
	s.NoneDrained()
	s.NothingLeft()
}

// moveConfig writes the configuration of agents and a watcher that moves jobs, and returns its path.
func moveConfig(t *testing.T, command string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/preempt.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "caelum.yaml")
	text = append(text, "preempt: false\nmoves_per_day: 1440\nmove_command: "+command+"\n"...)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
