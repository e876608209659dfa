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

// slowShow replaces caelum-show on a node. It requests the job's record from slurmctld only after the attack, as if
// slurmctld were busy, whereas the agent runs squeue before the attack.
const slowShow = `#!/bin/bash
if [[ $1 == job && ! -e HOME/attacked ]]; then
    : >HOME/asking
    for ((i = 0; i < 100; i++)); do
        [[ ! -e HOME/attacked ]] || break
        sleep 0.1
    done
fi
exec /run/caelum-show "$@"
`

// TestDrainByShrinkingJob checks that no node is drained if a user shrinks a job between the agent's calls to squeue
// and caelum-show, whose outputs then disagree about the job.
func TestDrainByShrinkingJob(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 2, GPUs: 1})
	const program = "/run/devcluster/build/caelum-show"
	s.Write("show", strings.ReplaceAll(slowShow, "HOME", s.Home()))
	for _, node := range s.Nodes {
		s.Must(node, "root", "cp", program, "/run/caelum-show")
		s.Must(node, "root", "mount", "--bind", filepath.Join(s.Home(), "show"), program)
	}
	id := s.Submit("sleep 1", "-N2", "--gres=gpu:1")
	s.Within("the agent requests the record of the job", func() bool {
		_, err := os.Stat(filepath.Join(s.Home(), "asking"))
		return err == nil
	})
	s.Must("", attacker, "scontrol", "update", "job="+id, "NumNodes=1")
	s.Write("attacked", "")
	s.Within("the job has ended", func() bool {
		s.NoneDrained()
		state := s.State(id)
		return t.Failed() || state == "COMPLETED" || state == "FAILED" || state == "CANCELLED"
	})
	s.NoneDrained()
	next := s.Submit("srun true", "-N2", "--gres=gpu:1")
	s.Completed(next)
}
