//go:build e2e

package e2efaults

import (
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// prompt is how soon a job must start after its submission. It is well below one minute, the interval at which an agent
// compares GPU, ledger and slurmctld even without a notification.
const prompt = 25 * time.Second

// TestWatcher uses agents that poll the queue only once an hour. The watcher notifies the agents of each submission, so
// jobs whose slices are not offered must start promptly. The test submits jobs on one node, a job that is held until
// its slice can be created, and a job on two nodes. It also submits one job after killing the watcher, and another
// after restarting slurmctld.
func TestWatcher(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 2, AgentConfig: "testdata/watched.yaml"})
	starts := func(what string, options ...string) { t.Helper(); s.startsPromptly(what, options...) }
	for range 5 {
		starts("two whole GPUs, of which idle nodes offer parts", "--gres=mig:7g.40gb:2")
		starts("halves instead", "--gres=mig:3g.20gb:4")
	}
	starts("on a node that the job names", "-w", "n2", "--gres=mig:7g.40gb:2")
	starts("on two nodes", "-N", "2", "--gres=mig:7g.40gb:2")
	if err := s.KillUnit("watcher", "KILL"); err != nil {
		t.Fatal(err)
	}
	starts("after the watcher was killed", "--gres=mig:7g.40gb:2")
	if err := s.RestartUnit("slurmctld"); err != nil {
		t.Fatal(err)
	}
	starts("after slurmctld was restarted", "--gres=mig:3g.20gb:4")
	starts("and again", "--gres=mig:7g.40gb:2")
	s.Try("", "scontrol", "update", "nodename=ALL", "state=resume")          // fails for the idle nodes
	starts("after the catalogue nodes were resumed", "--gres=mig:3g.20gb:4") // the watcher reads the nodes again
	s.Within("the watcher has hidden the catalogue nodes", func() bool {
		log, err := s.Log("watcher")
		return err == nil && strings.Contains(log, "set a catalogue node to FUTURE again") &&
			!strings.Contains(s.Must("", "root", "sinfo", "-h", "-N"), "mig-catalog")
	})
	s.NoneDrained()
	s.NothingLeft()
}

// startsPromptly submits a job and waits until it has started and ended. The start must be prompt.
func (s *site) startsPromptly(what string, options ...string) {
	s.t.Helper()
	id, began := s.Submit("sleep 1", options...), time.Now()
	for s.Lives(id) == "PENDING" {
		if time.Since(began) > prompt {
			s.t.Fatalf("%s: job %s waits", what, id)
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
	s.Completed(id)
}

// TestWatcherWithKey checks that notifications work with a key file.
func TestWatcherWithKey(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 2, AgentConfig: "testdata/keyed.yaml"})
	for range 3 {
		s.startsPromptly("two whole GPUs", "--gres=mig:7g.40gb:2")
		s.startsPromptly("halves instead", "--gres=mig:3g.20gb:4")
	}
	s.NoneDrained()
	s.NothingLeft()
}

// TestMungedRestart checks that notifications continue after munged was down and after it hung. The watcher and the
// agent start new sessions while munged is away, and agents poll only once an hour.
func TestMungedRestart(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: "testdata/watched.yaml"})
	s.startsPromptly("before", "--gres=mig:7g.40gb:1")
	s.startsPromptly("before", "--gres=mig:3g.20gb:2")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(s.StopUnit("munged"))
	do(s.KillUnit("watcher", "KILL"))
	time.Sleep(3 * time.Second)
	do(s.StartUnit("munged"))
	s.startsPromptly("after munged was down", "--gres=mig:7g.40gb:1")
	do(s.KillUnit("munged", "STOP"))
	do(s.KillUnit("watcher", "KILL"))
	do(s.KillUnit("agent-n1", "KILL"))
	time.Sleep(15 * time.Second)
	do(s.KillUnit("munged", "CONT"))
	s.startsPromptly("after munged hung", "--gres=mig:3g.20gb:2")
	s.startsPromptly("and again", "--gres=mig:7g.40gb:1")
	s.NoneDrained()
	s.NothingLeft()
}
