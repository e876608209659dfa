//go:build e2e

package e2efaults

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/node/api"
)

// TestAdoptAfterLostLedger checks that only root can make the agent adopt the idle instances after the loss of the
// ledger.
func TestAdoptAfterLostLedger(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1, AgentConfig: tightest})
	keep := s.Submit("./hold keep", "--gres=mig:1g.5gb:1")
	s.Running(keep)
	slice := s.Slice("n1", keep)
	// The idle instance of this job remains, because no job starts after it.
	s.Completed(s.Submit("cuda-process --exclusive --seconds 0.5", "--gres=mig:3g.20gb:1"))
	if err := s.StopUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	s.Must("n1", "root", "sh", "-c", "rm /var/lib/caelum/ledger.db*")
	if err := s.StartUnit("agent-n1"); err != nil {
		t.Fatal(err)
	}
	if n := s.instances(api.StateForeign); n != 1 {
		t.Fatalf("%d instances are foreign, want 1", n)
	}
	if _, stderr, err := s.ExecNode(t.Context(), "n1", user, "caelum", "adopt", "--all"); err == nil ||
		!strings.Contains(stderr, "only root") {
		t.Errorf("as a user: %v: %s", err, stderr)
	}
	t.Log(s.Must("n1", "root", "caelum", "adopt", "--all"))
	if foreign, idle := s.instances(api.StateForeign), s.instances(api.StateIdle); foreign != 0 || idle != 1 {
		t.Errorf("%d instances are foreign and %d are idle, want 0 and 1", foreign, idle)
	}
	if now := s.Slice("n1", keep); now != slice {
		t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
	}
	s.End("keep")
	s.Completed(keep)
	s.Completed(s.Submit("cuda-process --exclusive --seconds 0.5", "--gres=mig:7g.40gb:1"))
	s.NothingLeft()
}

// instances returns how many of n1's instances are in the given state.
func (s *site) instances(state string) (n int) {
	s.t.Helper()
	status, err := s.Status("n1")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			if in.State == state {
				n++
			}
		}
	}
	return n
}
