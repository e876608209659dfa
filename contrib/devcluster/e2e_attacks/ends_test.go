//go:build e2e

package e2eattacks

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/core/plan"
)

// TestEndsPrivate checks a site where slurmctld hides other users' jobs. A node's record must not show when hidden jobs
// will end. The agents must still know these times, and reserve a GPU from then on.
func TestEndsPrivate(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, Conf: []string{"PrivateData=jobs"}})
	job := occupy(s, "--time=10")
	waiting := s.Must("", attacker, "sbatch", "--parsable", "--gres=gpu:1,mig:7g.40gb:1", "--wrap", "true")
	s.Within("a GPU is reserved for job "+waiting+" from the end of job "+job, func() bool {
		status, err := s.Status("n1")
		end := strings.TrimSpace(s.Try("", "squeue", "-h", "-j", job, "-o", "%e"))
		return err == nil && status.Reserved != nil && end != "" &&
			strings.Contains(
				s.Try("n1", "caelum", "status"),
				"reserved for job "+waiting+", from "+strings.Replace(end, "T", " ", 1),
			)
	})
	extra := s.Must("", attacker, "bash", "-c", "scontrol show node n1 | sed -n 's/^ *Extra=//p'")
	if state, err := plan.Parse(plan.StateIn(extra)); err != nil || state.GPUs[0].Busy == 0 {
		t.Errorf("the Extra field of the node contains %q: %v", extra, err)
	} else if state.GPUs[0].Ends != nil {
		t.Errorf("a user sees the end time of another user's job: %s", extra)
	}
	s.Must("", "root", "scancel", job, waiting)
	s.NothingLeft()
}
