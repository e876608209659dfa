//go:build e2e

package e2efaults

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/core/plan"
)

// onOfferOn returns a profile that one node offers and the other node does not offer. A job that requests this profile
// starts on the first node without -w.
func (s *site) onOfferOn(node, other string) string {
	s.t.Helper()
	var profile string
	s.Within("only "+node+" offers a profile", func() bool {
		here, err1 := s.Status(node)
		there, err2 := s.Status(other)
		if err1 != nil || err2 != nil {
			return false
		}
		elsewhere := map[string]bool{}
		for _, g := range there.GPUs {
			for _, p := range g.Offers {
				elsewhere[p.Profile] = true
			}
		}
		for _, g := range here.GPUs {
			for _, p := range g.Offers {
				if !elsewhere[p.Profile] && p.Profile != "7g.40gb" {
					profile = p.Profile
				}
			}
		}
		return profile != ""
	})
	return profile
}

// started waits until slurmctld has started a job on a node.
func (s *site) started(id, node string) {
	s.t.Helper()
	s.Within("slurmctld has started job "+id+" on "+node, func() bool {
		return s.Try("", "squeue", "-h", "-j", id, "-o", "%N") == node
	})
}

// explained waits until `caelum explain`, run by the user on the login node, prints the given verdict.
func (s *site) explained(id, verdict string) {
	s.t.Helper()
	var e plan.Explanation
	for end := time.Now().Add(clustertest.Limit); string(e.Verdict) != verdict; time.Sleep(200 * time.Millisecond) {
		if err := json.Unmarshal([]byte(s.Must("", user, "caelum", "explain", id, "--json")), &e); err != nil {
			s.t.Fatal(err)
		}
		if time.Now().After(end) {
			s.t.Fatalf("caelum explain prints %+v for job %s, not the verdict %s", e, id, verdict)
		}
	}
	s.t.Logf("job %s: %s", id, e.Text)
}

// hang returns how long prologs wait for an agent, which also determines how long the agent is suspended.
// FAULTS_HANG=60s selects the plugin's default.
func hang(t *testing.T) (patience time.Duration) {
	text := os.Getenv("FAULTS_HANG")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("FAULTS_HANG: %v", err)
	}
	return d
}

// TestAgentHangs suspends an agent for less time than prologs wait, and later for one and a half times as long. During
// the suspensions, the other node must run jobs, including those that were planned for the suspended agent's node.
func TestAgentHangs(t *testing.T) {
	wait := hang(t)
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1, AgentConfig: tightest})
	edit := func(change string, to time.Duration) {
		s.Must("", "root", "sed", "-i", fmt.Sprintf(change, to.Seconds()), "/etc/slurm/plugstack.conf")
	}
	edit("s/spank_caelum.so.*/& wait=%.0f/", 10*wait) // longer than clustertest.Limit, in which the other job must end
	s.hangsBriefly(wait)
	edit("s/wait=[0-9]*/wait=%.0f/", wait)
	s.hangsLong(wait)
	s.NothingLeft()
}

// hangsBriefly suspends n1's agent until a job on n2 has ended, for at least wait/2, and checks that n1's prolog waits
// and that no node is drained.
func (s *site) hangsBriefly(wait time.Duration) {
	s.t.Helper()
	profile := s.onOfferOn("n1", "n2")
	s.signalAgent("STOP")
	began := time.Now()
	first := s.Submit("./hold first", "--gres=mig:"+profile+":1")
	s.started(first, "n1")
	s.Completed(s.Submit("cuda-process", "--gres=mig:7g.40gb:1"))
	s.t.Logf(
		"a job got a whole GPU of n2 %v after the agent of n1 had stopped answering",
		time.Since(began).Round(100*time.Millisecond),
	)
	time.Sleep(time.Until(began.Add(wait / 2)))
	if s.drained() {
		s.t.Errorf("n1 was drained after %v", time.Since(began))
	}
	s.signalAgent("CONT")
	s.Running(first)
	s.Slice("n1", first)
	s.End("first")
	s.Completed(first)
	s.NoneDrained()
}

// hangsLong suspends n1's agent for longer than prologs wait, and checks that the node is drained and the job is
// requeued.
func (s *site) hangsLong(wait time.Duration) {
	s.t.Helper()
	profile := s.onOfferOn("n1", "n2")
	s.signalAgent("STOP")
	began := time.Now()
	second := s.Submit("cuda-process", "--gres=mig:"+profile+":1")
	s.started(second, "n1")
	other := s.Submit("cuda-process", "--gres=mig:7g.40gb:1") // a profile that n1 does not offer
	for end := began.Add(wait * 3); !s.drained(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			s.t.Fatal("n1 was not drained")
		}
	}
	s.t.Logf(
		"n1 was drained %v after its agent had stopped: %s",
		time.Since(began).Round(time.Second),
		s.Must("", "root", "sinfo", "-hR", "-p", "plain", "-n", "n1", "-o", "%E"),
	)
	s.Completed(other)
	time.Sleep(time.Until(began.Add(wait * 3 / 2)))
	s.signalAgent("CONT")
	s.Within("the job is in the queue again", func() bool { return s.State(second) == "PENDING" })
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=resume")
	s.Must("", "root", "scancel", second)
	s.Completed(s.Submit("cuda-process", "--gres=mig:"+profile+":1"))
	s.NoneDrained()
}

// drained reports whether n1 is DRAINING or DRAINED.
func (s *site) drained() bool {
	s.t.Helper()
	return strings.Contains(s.Must("", "root", "sinfo", "-h", "-p", "plain", "-n", "n1", "-o", "%T"), "drain")
}

// signalAgent sends a signal to n1's agent.
func (s *site) signalAgent(name string) {
	s.t.Helper()
	if err := s.KillUnit("agent-n1", name); err != nil {
		s.t.Fatal(err)
	}
}

// TestNodeLost makes a node fail permanently: its daemons do not answer, and its offers are not closed. The jobs that
// were running on it or planned for it must run on another node.
func TestNodeLost(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1, Conf: []string{"SlurmdTimeout=5"}})
	first := s.Submit("./hold first", "--gres=mig:7g.40gb:1", "--requeue")
	second := s.Submit("./hold second", "--gres=mig:7g.40gb:1", "--requeue")
	s.Running(first, second)
	lost := s.Try("", "squeue", "-h", "-j", second, "-o", "%N")
	other := map[string]string{"n1": "n2", "n2": "n1"}[lost]
	next := s.Submit("cuda-process", "--gres=mig:7g.40gb:1")
	s.explained(next, "first")
	s.explained(first, "started")
	for _, unit := range []string{"slurmd-" + lost, "agent-" + lost} {
		if err := s.KillUnit(unit, "STOP"); err != nil {
			t.Fatal(err)
		}
		defer s.KillUnit(unit, "CONT")
	}
	s.End("first")
	s.Completed(first)
	s.Completed(next)
	s.Within(lost+" is down", func() bool {
		return strings.HasPrefix(s.Must("", "root", "sinfo", "-h", "-p", "plain", "-n", lost, "-o", "%T"), "down")
	})
	for _, profile := range []string{"1g.5gb", "7g.40gb", "3g.20gb"} {
		s.Completed(s.Submit("cuda-process", "--gres=mig:"+profile+":1"))
	}
	status, err := s.Status(other)
	if err != nil || len(status.Leases) > 0 {
		t.Errorf("%s has %+v, %v", other, status.Leases, err)
	}
}
