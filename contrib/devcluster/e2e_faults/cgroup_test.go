//go:build e2e

package e2efaults

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// TestRestartsInCgroups checks that, in a cluster with cgroups, a restarted slurmd runs and confines GPU jobs.
func TestRestartsInCgroups(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			s := start(t, cluster.Options{Nodes: 1, GPUs: 1, Cgroup: version})
			const job = "cuda-process --exclusive --seconds 0.3 && grep -hE '/job_|slurmstepd.scope/' /proc/self/cgroup"
			s.Completed(s.Submit(job, "--gres=mig:1g.5gb:1"))
			keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
			s.Running(keep)
			if err := s.RestartUnit("slurmd-n1"); err != nil {
				t.Fatal(err)
			}
			s.Completed(s.Submit(job, "--gres=mig:1g.5gb:1"))
			if said := s.Try("n1", "caelum", "doctor"); !strings.Contains(said, "ok       isolation:") {
				t.Errorf("caelum doctor printed a finding although Slurm confines jobs:\n%s", said)
			}
			s.End("keep")
			s.Completed(keep)
			if here := s.Must("n1", "root", "cat", "/proc/self/cgroup"); strings.Contains(here, "/..") {
				t.Errorf("a command of devcluster exec is outside the cluster's cgroups:\n%s", here)
			}
			s.NoneDrained()
			s.NothingLeft()
		})
	}
}
