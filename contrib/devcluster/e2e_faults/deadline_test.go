//go:build e2e

package e2efaults

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// TestDeadline submits jobs with deadlines to a GPU that is in use. The job that is expected to miss its deadline is
// logged once, and still gets the GPU before an earlier job of equal priority. A job that Caelum holds, because it
// requests a node by name, is released after its latest start, so that slurmctld ends it.
func TestDeadline(t *testing.T) {
	s := start(t, cluster.Options{
		Nodes: 1, GPUs: 1, AgentConfig: "testdata/planned.yaml", Conf: []string{"PriorityType=priority/multifactor"},
	})
	busy := s.Submit("./hold busy", "--gres=mig:7g.40gb:1", "-t", "60")
	s.Running(busy)
	other := s.Submit("sleep 600", "--gres=mig:3g.20gb:1", "-t", "30")
	due := s.Submit("sleep 600", "--gres=mig:7g.40gb:1", "-t", "1", "--deadline=now+12minutes")
	held := s.Submit("sleep 600", "--gres=mig:3g.20gb:1", "-t", "1", "--deadline=now+75seconds", "-w", "n1")
	if job := s.Must("", "root", "scontrol", "show", "job", held); !strings.Contains(job, "caelum:held") {
		t.Errorf("Caelum does not hold job %s:\n%s", held, job)
	}
	late := func() int {
		log, err := s.Log("watcher")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(log) {
			if strings.Contains(line, `"job":`+due+`,`) && strings.Contains(line, "cannot meet its deadline") {
				n++
			}
		}
		return n
	}
	s.Within("the watcher reports job "+due, func() bool { return late() > 0 })
	if text := s.Must("", "root", "caelum", "explain", due); !strings.Contains(text, "deadline") {
		t.Errorf("caelum explain %s: %s", due, text)
	}
	s.Must("", user, "scontrol", "hold", due)
	s.Within("slurmctld ends job "+held, func() bool { return s.State(held) == "DEADLINE" })
	s.Must("", user, "scontrol", "release", due)
	s.Within("the job is released", func() bool {
		return !strings.Contains(s.Must("", "root", "scontrol", "show", "job", due), "Reason=JobHeldUser")
	})
	s.End("busy")
	s.Completed(busy)
	s.Running(due)
	if state := s.State(other); state != "PENDING" {
		t.Errorf("job %s, which has no deadline, is %s", other, state)
	}
	s.Must("", user, "scancel", due)
	s.Running(other)
	if n := late(); n != 1 {
		t.Errorf("the watcher reported job %s %d times", due, n)
	}
	s.Must("", "root", "scancel", "-u", user)
	s.NoneDrained()
	s.NothingLeft()
}
