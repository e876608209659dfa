package plan

import (
	"testing"

	"caelum/internal/slurm"
)

// TestHeldElsewhere checks which held jobs can use the whole GPUs of a node without an agent.
func TestHeldElsewhere(t *testing.T) {
	mig := func(kind string, n int) slurm.GRES { return slurm.GRES{Name: "mig", Type: kind, Count: n} }
	fixed := node(t, "v1")
	fixed.Extra = ""
	fixed.Gres = slurm.GRESList{{Name: "gpu", Type: "v100", Count: 2}, mig("1g.5gb", 2), mig("7g.40gb", 2)}
	managed := node(t, "n1", a100(t))
	managed.Gres = slurm.GRESList{{Name: "gpu", Type: "a100", Count: 7}, mig("1g.5gb", 7), mig("closed", 21)}
	held := func(profile string, count int, nodes ...string) slurm.Waiting {
		w := waits(1, profile, count, max(len(nodes), 1))
		w.ReqNodes, w.AdminComment, w.Reason, w.Priority = nodes, "caelum:held", "JobHeldUser", 0
		return w
	}
	for _, c := range []struct {
		what string
		job  slurm.Waiting
		want bool
	}{
		{"on the other node", held("7g.40gb", 2, "v1"), true},
		{"anywhere", held("1g.5gb", 1), true},
		{"on the managed node", held("1g.5gb", 1, "n1"), false},
		{"on both nodes", held("1g.5gb", 1, "n1", "v1"), false},
		{"more GPUs than the node has", held("1g.5gb", 3, "v1"), false},
		{"a profile without a count", held("2g.10gb", 1, "v1"), false},
		{"not held", waits(1, "1g.5gb", 1, 1), false},
	} {
		s := snapshotOf([]slurm.Node{managed, fixed}, c.job)
		if got := len(s.HeldElsewhere()) == 1; got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
