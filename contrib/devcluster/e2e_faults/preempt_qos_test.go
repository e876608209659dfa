//go:build e2e

package e2efaults

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/failpoint"
)

// TestPreemptQOS fills two nodes with jobs of QOS that a third QOS may preempt, and then submits an array of two tasks
// of that QOS, which need whole GPUs. For one task, a job on n1 is requeued and another, which must not be requeued, is
// cancelled, but not before their exempt time is over. For the other task, the two tasks of an array on n2 are
// cancelled after their grace time. The agents are killed after each release of a slice, before they publish it.
// No job is stopped while slurmctld would give the room to an earlier job of another QOS.
func TestPreemptQOS(t *testing.T) {
	s := start(t, cluster.Options{
		Nodes: 2, GPUs: 1, AgentConfig: "testdata/preempt.yaml",
		AgentEnv: []string{"CAELUM_FAILPOINT=" + failpoint.Released},
		Conf:     []string{"PreemptType=preempt/qos", "PreemptMode=REQUEUE", "KillWait=2"},
	})
	for _, qos := range [][]string{
		{"scavenger", "PreemptExemptTime=00:00:20"},
		{"short", "PreemptMode=CANCEL", "GraceTime=3"},
		{"urgent", "Preempt=scavenger,short"},
		{"equal"},
	} {
		s.Must("", "root", append([]string{"sacctmgr", "-i", "add", "qos"}, qos...)...)
	}
	if err := s.RestartUnit("watcher"); err != nil { // it reads the QOS at its start, and then once a minute
		t.Fatal(err)
	}
	requeued := s.Submit("sleep 600", onHalf("scavenger", "n2", "--requeue")...)
	cancelled := s.Submit("sleep 600", onHalf("scavenger", "n2", "--no-requeue")...)
	s.Write("warned", "#!/bin/bash\ntrap 'date +%s > warned.$SLURM_JOB_ID' TERM\nwhile :; do sleep 0.2; done\n")
	array := s.Submit("srun ./warned", onHalf("short", "n1", "--array=0-1")...)
	s.Running(requeued, cancelled, array+"_0", array+"_1")
	equal := s.Submit("sleep 600", "--qos=equal", "--gres=mig:7g.40gb:1", "-t", "30")
	urgent := s.Submit("sleep 600", "--qos=urgent", "--gres=mig:7g.40gb:1", "-t", "30", "--array=0-1")
	s.Within("slurmctld has considered "+urgent, func() bool {
		reason := s.Try("", "squeue", "-h", "-j", urgent, "-o", "%r")
		return !strings.Contains(reason, "None") && !strings.Contains(reason, "Priority")
	})
	time.Sleep(10 * time.Second) // two intervals of the watcher
	if log, err := s.Log("watcher"); err != nil || strings.Contains(log, `"preemptor":`) {
		t.Errorf("the watcher stops jobs although job %s is the first in the queue (%v)", equal, err)
	}
	s.Must("", user, "scancel", equal)
	equal = s.Submit("sleep 600", "--qos=equal", "--gres=mig:7g.40gb:1", "-t", "30")
	began := time.Now()
	for _, task := range []string{"_0", "_1"} {
		s.Within("task "+task+" of "+urgent+" runs", func() bool { return s.State(urgent+task) == "RUNNING" })
		t.Logf("task %s runs after %.1f s", task, time.Since(began).Seconds())
	}
	if state := s.State(equal); state != "PENDING" {
		t.Errorf("job %s, whose QOS may not preempt, is %s", equal, state)
	}
	for _, c := range [][2]string{
		{requeued, "PENDING"}, {cancelled, "CANCELLED"}, {array + "_0", "CANCELLED"}, {array + "_1", "CANCELLED"},
	} {
		if state := s.State(c[0]); state != c[1] {
			t.Errorf("job %s is %s, want %s", c[0], state, c[1])
		}
	}
	if job := s.Must("", "root", "scontrol", "show", "job", requeued); !strings.Contains(job, " Restarts=1 ") {
		t.Errorf("job %s was not requeued exactly once:\n%s", requeued, job)
	}
	s.ranAtLeast(20, requeued, cancelled)
	if found, _ := filepath.Glob(filepath.Join(s.Home(), "warned.[0-9]*")); len(found) != 2 {
		t.Errorf("%d of 2 jobs got the signal of their grace time", len(found))
	}
	if log, err := s.Log("watcher"); err != nil || strings.Count(log, `"step":"stop"`) != 4 {
		t.Errorf("the watcher logged %d stops, want 4; %v", strings.Count(log, `"step":"stop"`), err)
	}
	for _, node := range s.Nodes {
		if log, err := s.Log("agent-" + node); err != nil || !strings.Contains(log, "ended with status 137") {
			t.Errorf("the agent of %s was not killed (%v)", node, err)
		}
	}
	s.Must("", "root", "scancel", "-u", user)
	s.NoneDrained()
	s.NothingLeft()
}

// onHalf requests half a GPU with a QOS on the node that is not excluded.
func onHalf(qos, excluded string, more ...string) []string {
	return append([]string{"--qos=" + qos, "-x", excluded, "--gres=mig:3g.20gb:1", "-t", "30"}, more...)
}

// ranAtLeast checks with sacct that the first run of each job took at least this number of seconds.
func (s *site) ranAtLeast(seconds int, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		out := s.Must("", "root", "sacct", "-n", "-P", "-X", "-D", "-j", id, "-o", "ElapsedRaw,State")
		first, _, _ := strings.Cut(out, "|")
		if took, err := strconv.Atoi(first); err != nil || took < seconds {
			s.t.Errorf("job %s ended after %q s, during its exempt time of %d s: %s", id, first, seconds, out)
		}
	}
}
