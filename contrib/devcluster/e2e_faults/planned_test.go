//go:build e2e

package e2efaults

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// The agents log these messages when they begin and stop following the watcher's plan.
const (
	follows = "following the watcher's plan"
	expired = "the watcher's plan has expired"
)

// TestPlanned uses a watcher that makes the plan for all nodes. Jobs of all kinds must start while the agents follow
// this plan, after the watcher was killed, while it is stopped, and after slurmctld was restarted. Until the watcher is
// killed, no agent may make its own plan, because this would hide faults of the watcher's plan. The new watcher takes
// the place of the killed one at once, but on a slow machine, the agents may make their own plans in between.
func TestPlanned(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 2, AgentConfig: "testdata/planned.yaml"})
	count := func(text string) (all int) {
		for _, unit := range []string{"agent-n1", "agent-n2"} {
			log, err := s.Log(unit)
			if err != nil {
				t.Fatal(err)
			}
			all += min(strings.Count(log, text), 100)
		}
		return all
	}
	runs := func(what string, options ...string) {
		t.Helper()
		began := time.Now()
		id := s.Submit("sleep 1", options...)
		s.Completed(id)
		t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
	}
	s.Within("both agents follow", func() bool { return count(follows) == 2 })
	for range 3 {
		runs("two whole GPUs, of which idle nodes offer parts", "--gres=mig:7g.40gb:2")
		runs("halves instead", "--gres=mig:3g.20gb:4")
	}
	runs("on a node that the job names", "-w", "n2", "--gres=mig:7g.40gb:2")
	runs("on two nodes", "-N", "2", "--gres=mig:7g.40gb:2")
	array := s.Submit("sleep 1", "--array=0-3", "--gres=mig:2g.10gb:1")
	s.Completed(array+"_0", array+"_1", array+"_2", array+"_3")
	if n := count(expired); n > 0 {
		t.Errorf("agents have made their own plans %d times", n)
	}
	planner := func() string {
		return regexp.MustCompile(`caelum-beat=\w*`).FindString(s.Must("", "root", "scontrol", "show", "node", "n1"))
	}
	s.Within("the agents read no nodes at rest", func() bool { return s.nodeRequests(10*time.Second) <= 3 })
	killed := planner()
	if err := s.KillUnit("watcher", "KILL"); err != nil {
		t.Fatal(err)
	}
	runs("after the watcher was killed", "--gres=mig:7g.40gb:2")
	s.Within("a new watcher makes the plan", func() bool { return planner() != killed })
	own := count(expired)
	if err := s.StopUnit("watcher"); err != nil {
		t.Fatal(err)
	}
	runs("without the watcher", "--gres=mig:3g.20gb:4")
	s.Within("both agents make their own plans", func() bool { return count(expired) >= own+2 })
	runs("again without the watcher", "-N", "2", "--gres=mig:7g.40gb:2")
	followed := count(follows)
	if err := s.StartUnit("watcher"); err != nil {
		t.Fatal(err)
	}
	s.Within("both agents follow again", func() bool { return count(follows) >= followed+2 })
	if err := s.RestartUnit("slurmctld"); err != nil {
		t.Fatal(err)
	}
	runs("after slurmctld was restarted", "--gres=mig:7g.40gb:2")
	s.NoneDrained()
	s.NothingLeft()
}

var nodeInfo = regexp.MustCompile(`REQUEST_NODE_INFO +\( *\d+\) count:(\d+)`)

// nodeRequests returns the number of requests for nodes that slurmctld receives in a period. At rest, the watcher sends
// one every 5 s. An agent that receives no confirmations sends one at each poll.
func (s *site) nodeRequests(period time.Duration) int {
	s.Must("", "root", "sdiag", "--reset")
	time.Sleep(period)
	m := nodeInfo.FindStringSubmatch(s.Must("", "root", "sdiag"))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
