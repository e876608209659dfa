package plan

import (
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestUnresponsive checks that the plan excludes a node whose offers have differed from the plan for longer than
// Patience. The node must be included again once its state changes.
func TestUnresponsive(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	l := Unresponsive{Patience: 10 * time.Second}
	follow := func(after time.Duration) (members int) {
		snapshot := snapshotOf(nodes, waits(1, "7g.40gb", 1, 1))
		snapshot.At = snapshot.At.Add(after)
		v := New(snapshot, withLifetime, func(n slurm.Node) bool { return n.Name != "n2" && l.LeftOut(n, snapshot.At) })
		l.Record(v, v.Plan(), "n2", snapshot.At)
		return len(v.Members)
	}
	for _, c := range []struct {
		after   time.Duration
		members int
	}{{0, 2}, {9 * time.Second, 2}, {11 * time.Second, 1}, {60 * time.Second, 1}} {
		if n := follow(c.after); n != c.members {
			t.Errorf("after %v: %d members, want %d", c.after, n, c.members)
		}
	}
	nodes[0].Gres = append(nodes[0].Gres, slurm.GRES{Name: "mig", Type: "7g.40gb", Count: 1})
	if n := follow(61 * time.Second); n != 2 {
		t.Errorf("the node's state has changed: %d members, want 2", n)
	}
}
