//go:build e2e

package e2efaults

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/failpoint"
)

// TestAgentKilled kills the agent repeatedly between two of its persistent effects. Each agent that the keeper starts
// is killed at the same failpoint. Meanwhile, one job keeps running, and others wait in their prologs, run and end.
func TestAgentKilled(t *testing.T) {
	// A failpoint with a count lets each agent make some progress before it is killed.
	for _, point := range []string{
		failpoint.Created + ":2", failpoint.Destroyed, failpoint.GrantOpened + ":2", failpoint.Granted + ":2",
		failpoint.Released + ":2", failpoint.Lowered + ":3",
	} {
		t.Run(point, func(t *testing.T) {
			s := start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentEnv: []string{"CAELUM_FAILPOINT=" + point}})
			keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1")
			s.Running(keep)
			slice := s.Slice("n1", keep)
			ids := []string{}
			// Small idle slices occupy units that the larger profiles need.
			for _, profile := range []string{"1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "3g.20gb", "1g.5gb", "1g.10gb"} {
				ids = append(ids, s.Submit("cuda-process --exclusive --seconds 1", "--gres=mig:"+profile+":1"))
			}
			s.Completed(ids...)
			if now := s.Slice("n1", keep); now != slice {
				t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
			}
			s.End("keep")
			s.Completed(keep)
			s.NoneDrained()
			s.NothingLeft()
			log, err := s.Log("agent-n1")
			if err != nil {
				t.Fatal(err)
			}
			kills := strings.Count(log, "ended with status 137")
			if kills == 0 {
				t.Error("the agent was never killed, so the test proves nothing")
			}
			t.Logf("%d kills, %d jobs", kills, len(ids)+1)
		})
	}
}
