//go:build e2e

package e2efaults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/cli/doctor"
	"caelum/internal/slurm"
)

// waitFor is a job script that starts no process on its slice, and ends when the end.NAME file exists.
const waitFor = "until [ -e $HOME/end.%s ]; do sleep 0.2; done"

// TestExcess makes slurmctld count the slices of a job on two nodes twice on each node, by reconfiguring or restarting
// slurmctld while the job is running. A job for an empty GPU must still start, both while the two-node job runs and
// after it has ended.
func TestExcess(t *testing.T) {
	t.Run("reconfigure", func(t *testing.T) {
		s, pair := jobOnTwoNodes(t)
		if _, _, err := s.ExecNode(t.Context(), "", "root", "scontrol", "reconfigure"); err != nil {
			t.Fatal(err)
		}
		if s.Release().Compare(slurm.Release{Year: 23, Month: 11}) < 0 {
			excess(t, s, pair)
		} else {
			onceOrTwice(s, pair)
		}
	})
	t.Run("restart", func(t *testing.T) {
		s, pair := jobOnTwoNodes(t)
		if err := s.RestartUnit("slurmctld"); err != nil {
			t.Fatal(err)
		}
		excess(t, s, pair)
	})
}

// jobOnTwoNodes starts a cluster of two nodes with three GPUs each, and a job that occupies two GPUs on each node until
// the end.pair file exists.
func jobOnTwoNodes(t *testing.T) (s *site, pair string) {
	s = start(t, cluster.Options{Nodes: 2, GPUs: 3, KeepDeviceFiles: true})
	pair = s.Submit(fmt.Sprintf(waitFor, "pair"), "-N2", "--gres=mig:7g.40gb:2")
	s.Running(pair)
	return s, pair
}

// onceOrTwice checks the cluster after a reconfiguration of Slurm 23.11 or later, which restarts slurmctld with its
// saved state. The restarted slurmctld usually counts the job's slices once, and rarely twice. In both cases, the third
// GPU of a node must be available during the job, and all GPUs must be available after the job.
func onceOrTwice(s *site, pair string) {
	third := s.Submit("./hold third", "-w", "n1", "--gres=mig:7g.40gb:1")
	s.Running(third)
	s.End("pair")
	s.Completed(pair)
	first := s.Submit(fmt.Sprintf(waitFor, "first"), "-w", "n1", "--gres=mig:7g.40gb:2")
	s.Running(first)
	s.End("third")
	s.End("first")
	s.Completed(third, first)
	s.NoneDrained()
	s.NothingLeft()
}

// excess checks the cluster while slurmctld counts the "pair" job's slices twice on each node, and then clears the
// excess.
func excess(t *testing.T, s *site, pair string) {
	third := s.Submit("./hold third", "-w", "n1", "--gres=mig:7g.40gb:1")
	s.Running(third)
	const shown = "slurmctld counts as used some slices that no job holds: 7g.40gb x2; the agent has raised the"
	for _, node := range s.Nodes {
		s.Within("the status of "+node+" shows the excess", func() bool {
			return s.published(node) && strings.Contains(s.Try(node, "caelum", "status"), shown)
		})
	}
	if !s.findings("slurmctld counts as used some slices of n1 that no job holds: 2 of 7g.40gb", doctor.Warning) ||
		s.findings("", doctor.Error) {
		t.Errorf("caelum doctor:\n%s", s.Try("n1", "caelum", "doctor"))
	}
	s.End("pair")
	s.Completed(pair)
	first := s.Submit(fmt.Sprintf(waitFor, "first"), "-w", "n1", "--gres=mig:7g.40gb:2")
	s.Running(first)
	if status := s.Try("n1", "caelum", "status"); !strings.Contains(status, shown) {
		t.Errorf("after the end of the job, the status of n1 does not show the excess:\n%s", status)
	}
	s.Within("the agent has run two passes without a write", func() bool {
		before := s.writes("n1")
		time.Sleep(2500 * time.Millisecond)
		return s.writes("n1") == before
	})

	// If no job runs on two nodes, a restart of slurmctld clears the excess. Jobs use every GPU of n1, so n1 has no
	// offers.
	if err := s.RestartUnit("slurmctld"); err != nil {
		t.Fatal(err)
	}
	s.Within("the status of n1 shows no excess", func() bool {
		return s.published("n1") && !strings.Contains(s.Try("n1", "caelum", "status"), "that no job holds")
	})
	if n := s.planned("n1"); len(n) != 0 {
		t.Errorf("n1 offers %v although jobs use all GPUs", n)
	}
	waits := s.Submit("./hold waits", "-w", "n1", "--gres=mig:7g.40gb:1")
	s.End("third")
	s.Completed(third)
	s.Running(waits)
	s.End("first")
	s.End("waits")
	s.Completed(first, waits)
	s.NoneDrained()
	s.NothingLeft()
}
