//go:build e2e

package e2eattacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestScopeLock checks a job that locks the directories of all cgroups that it can open. Other users' tasks, with and
// without slices, must still start, although Slurm 22.05 locks the scope of all slurmstepds when it starts a step
// (cgroup_v2.c).
func TestScopeLock(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, Cgroup: "v2"})
	s.Write("lock", `#!/bin/bash
for dir in $(find /sys/fs/cgroup -type d); do flock "$dir" bash -c 'touch locked; sleep 3600' & done
sleep 1
touch tried
wait
sleep 3600
`)
	lock := s.Must("", attacker, "sbatch", "--parsable", "lock")
	s.Within("the attacker has tried to lock the directories", func() bool {
		_, err := os.Stat(filepath.Join(s.Home(), "tried"))
		return err == nil
	})
	if _, err := os.Stat(filepath.Join(s.Home(), "locked")); err != nil {
		t.Error("the attacker got no lock, so the test proves nothing")
	}
	for _, options := range []string{"--gres=gpu:1,mig:1g.5gb:1", "--gres=none"} {
		job := s.Must("", victim, "sbatch", "--parsable", options, "--wrap", "srun true")
		s.Within("job "+job+" with "+options+" has ended during the lock", func() bool {
			return s.Lives(job) == "COMPLETED"
		})
	}
	if state := s.State(lock); !strings.Contains(state, "RUNNING") {
		t.Errorf("the state of the job that holds the lock is %s, so the test proves nothing", state)
	}
	s.Must("", "root", "scancel", lock)
	s.NoneDrained()
	s.NothingLeft()
}
