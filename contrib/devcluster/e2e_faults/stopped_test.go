//go:build e2e

package e2efaults

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/oracle"
)

// TestAgentStopped stops the agent permanently while one job is running and another is in its prolog. With wait=6, a
// prolog waits for 6 s instead of 60 s.
func TestAgentStopped(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1, PrologDelay: 3 * time.Second})
	s.Must("", "root", "sed", "-i", "s/spank_caelum.so.*/& wait=6/", "/etc/slurm/plugstack.conf")
	w := s.watch()
	run := s.Submit("./hold run", "--gres=mig:1g.5gb:1")
	s.Running(run)
	slice := s.Slice("n1", run)
	w.settled(s, "n1")

	starting := s.Submit("./hold starting", "--gres=mig:1g.5gb:1", "-w", "n1")
	s.Within(
		"slurmctld has started the second job",
		func() bool { return s.State(starting) == "CONFIGURING" || s.State(starting) == "RUNNING" },
	)
	began := time.Now()
	if err := s.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	if _, err := s.Status("n1"); err == nil {
		t.Fatal("the agent still answers")
	}
	s.closed(w, began, stopped)

	s.Within("the prolog has given up and drained the node", s.drained)
	// Slurm also drains the node, but its own reason must not replace the plugin's.
	s.Within("the job is in the queue again", func() bool { return s.State(starting) == "PENDING" })
	reason := s.Must("", "root", "sinfo", "-hR", "-p", "plain", "-n", "n1", "-o", "%E")
	t.Logf("the node's reason: %s", reason)
	if !strings.HasPrefix(reason, "caelum: job "+starting+": ") ||
		!strings.Contains(reason, "systemctl status caelumd") ||
		!strings.Contains(reason, "state=resume") {
		t.Errorf("the node's reason %q does not contain the remedy", reason)
	}
	if slices.ContainsFunc(w.since("n1", stopped), offered) {
		t.Error("n1 had offers without an agent")
	}
	if state := s.State(run); state != "RUNNING" {
		t.Errorf("the running job ended as %s", state)
	}
	s.End("run")
	s.Completed(run)

	s.Must("", "root", "scancel", starting)
	if err := s.StartUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	if out := s.Try("n1", "caelum", "job", run); !strings.Contains(out, "holds no slice") {
		s.Within("the slice of the ended job is free", func() bool {
			return strings.Contains(s.Try("n1", "caelum", "job", run), "holds no slice")
		})
	}
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=resume")
	next := s.Submit("cuda-process --exclusive", "--gres=mig:"+slice.Profile+":1")
	s.Completed(next)
	s.NoneDrained()
	s.NothingLeft()
}

func offered(l oracle.Snapshot) bool { return len(offers(l)) > 0 }

// closed checks that n1 has no offers after the agent and the command of ExecStopPost= have ended.
func (s *site) closed(w *watch, began, stopped time.Time) {
	s.t.Helper()
	s.Within("slurmctld has two new snapshots", func() bool { return len(w.since("n1", stopped)) > 1 })
	if after := w.since("n1", stopped); slices.ContainsFunc(after, offered) {
		s.t.Errorf("the agent and the command of ExecStopPost= have ended, but n1 offers %v", offers(after[0]))
	}
	if during := w.since("n1", began); len(during) > 0 {
		i := slices.IndexFunc(during, func(l oracle.Snapshot) bool { return !offered(l) })
		s.t.Logf(
			"the offers were closed %v after the stop of the agent; the agent and ExecStopPost= ended after %v",
			time.Unix(0, during[i].To).Sub(began).Round(10*time.Millisecond),
			stopped.Sub(began).Round(10*time.Millisecond),
		)
	}
}
