//go:build e2e

package e2efaults

import (
	"fmt"
	"regexp"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/cli/doctor"
	"caelum/internal/slurm"
)

// TestSlurmdAndAgentRestarted restarts the agent immediately after slurmd's registration, which has reset closed to the
// count in slurm.conf although slices are offered. After the agent has ended, and again after it has restarted, the sum
// of gres/mig must equal that in slurm.conf.
func TestSlurmdAndAgentRestarted(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2, KeepDeviceFiles: true})
	keep := s.Submit("./hold keep", "--gres=mig:1g.5gb:1")
	s.Running(keep)
	s.Within("offers", func() bool { return s.published("n1") && len(s.planned("n1")) > 0 })
	const n = 56 // four times the slots of two A100s
	if got := s.migSum(); got != n {
		t.Fatalf("the sum of gres/mig is %d, want %d", got, n)
	}

	// The test suspends the agent until the kill, so that the agent cannot correct the count of closed after the
	// registration.
	if err := s.KillUnit("agent-n1", "STOP"); err != nil {
		t.Fatal(err)
	}
	if err := s.RestartUnit("slurmd-n1"); err != nil {
		t.Fatal(err)
	}
	s.Within("slurmd has registered", func() bool { return s.migSum() > n })
	if err := s.KillUnit("agent-n1", "KILL"); err != nil {
		t.Fatal(err)
	}
	s.Within("the new agent has published offers", func() bool { return s.published("n1") && len(s.planned("n1")) > 0 })
	if got := s.migSum(); got != n {
		t.Errorf("the sum of gres/mig is %d, want %d", got, n)
	}
	if s.findings("", doctor.Error) {
		t.Errorf("caelum doctor:\n%s", s.Try("n1", "caelum", "doctor"))
	}

	// caelum doctor compares the sum with slurm.conf, regardless of the program that wrote the sum.
	if err := s.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	s.Must("", "root", "bash", "-c", fmt.Sprintf(`gres=$(scontrol show node n1 | sed -n 's/^ *Gres=//p')
		scontrol update nodename=n1 gres="${gres/closed:%d/closed:%d}"`, n, n+6))
	if !s.findings("gres/mig adds up to 62 on n1, but to 56 in slurm.conf", doctor.Error) {
		t.Errorf("caelum doctor:\n%s", s.Try("n1", "caelum", "doctor"))
	}
	if err := s.StartUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	s.Within("the sum of gres/mig is correct", func() bool { return s.published("n1") && s.migSum() == n })
	if err := s.RestartUnit("slurmd-n1"); err != nil {
		t.Fatal(err)
	}
	s.End("keep")
	s.Completed(keep)
	s.NoneDrained()
	s.NothingLeft()
}

var nodeGres = regexp.MustCompile(`(?m)^ *Gres=(\S+)`)

// migSum returns the sum of n1's gres/mig counts in slurmctld.
func (s *site) migSum() (sum int) {
	s.t.Helper()
	m := nodeGres.FindStringSubmatch(s.Must("", "root", "scontrol", "show", "node", "n1"))
	if m == nil {
		s.t.Fatal("scontrol shows no Gres for n1")
	}
	list, err := slurm.ParseGRES(m[1])
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range list {
		if g.Name == "mig" {
			sum += g.Count
		}
	}
	return sum
}
