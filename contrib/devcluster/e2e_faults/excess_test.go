//go:build e2e

package e2efaults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/doctor"
)

// TestExcess makes slurmctld count the slices of a job on two nodes twice on each node, by a reconfiguration or a
// restart while the job runs. A job for one of the empty GPUs must still start, both during that job and after it.
func TestExcess(t *testing.T) {
	for _, fault := range []struct {
		name string
		do   func(s *site) error
	}{
		{"reconfigure", func(s *site) error {
			_, _, err := s.Exec(t.Context(), "root", "scontrol", "reconfigure")
			return err
		}},
		{"restart", func(s *site) error { return s.RestartUnit("slurmctld") }},
	} {
		t.Run(fault.name, func(t *testing.T) { excess(t, fault.do) })
	}
}

func excess(t *testing.T, fault func(s *site) error) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 3, KeepDeviceFiles: true})
	const wait = "until [ -e $HOME/end.%s ]; do sleep 0.2; done" // hold takes one slice
	pair := s.Submit(fmt.Sprintf(wait, "pair"), "-N2", "--gres=mig:7g.40gb:2")
	s.Running(pair)
	if err := fault(s); err != nil {
		t.Fatal(err)
	}
	third := s.Submit("./hold third", "-w", "n1", "--gres=mig:7g.40gb:1")
	s.Running(third)
	const shown = "slurmctld counts slices as used that no job has: 7g.40gb x2; the published totals are raised"
	for _, node := range s.Nodes {
		s.Within("the status of "+node+" shows the excess", func() bool {
			return s.published(node) && strings.Contains(s.Try(node, "caelum", "status"), shown)
		})
	}
	if !s.findings("slurmctld counts slices of n1 as used that no job has: 2 of 7g.40gb", doctor.Warning) ||
		s.findings("", doctor.Error) {
		t.Errorf("caelum doctor:\n%s", s.Try("n1", "caelum", "doctor"))
	}
	s.End("pair")
	s.Completed(pair)
	first := s.Submit(fmt.Sprintf(wait, "first"), "-w", "n1", "--gres=mig:7g.40gb:2")
	s.Running(first)
	if status := s.Try("n1", "caelum", "status"); !strings.Contains(status, shown) {
		t.Errorf("after the job the status of n1 does not show the excess:\n%s", status)
	}
	s.Within("two passes without a write", func() bool {
		before := s.writes("n1")
		time.Sleep(2500 * time.Millisecond)
		return s.writes("n1") == before
	})

	// A restart without a job on two nodes clears the excess. Every GPU of n1 is in use, so n1 offers nothing.
	if err := s.RestartUnit("slurmctld"); err != nil {
		t.Fatal(err)
	}
	s.Within("the excess is gone", func() bool {
		return s.published("n1") && !strings.Contains(s.Try("n1", "caelum", "status"), "that no job has")
	})
	if n := s.planned("n1"); len(n) != 0 {
		t.Errorf("offered although jobs are on all GPUs: %v", n)
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
