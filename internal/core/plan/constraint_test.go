package plan

import (
	"slices"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// TestConstraints checks a job whose constraint no node satisfies. The plan must not reserve slices for it but give
// them to the next job, and `caelum explain` must say why the first job waits.
func TestConstraints(t *testing.T) {
	for _, c := range []struct {
		text  string
		nodes int
		on    string // the node on which the job is planned: n1 (feature a), n2 (b) or n3 (b, c)
		says  string
	}{
		{"a", 1, "n1", ""},
		{"a|c", 1, "n1", ""},
		{"a&b", 1, "", "n1 does not have the features a&b; n2 does not have the features a&b; n3 "},
		{"b&c", 1, "n3", ""},
		{"(a&b)|c", 1, "n3", ""},
		{"[b|c]", 2, "n2 n3", ""},
		{"[a|b]", 2, "n2 n3", ""},
		{"[a|c]", 2, "", "n1 could be one of the 2 nodes"},
		{"a|b", 3, "n1 n2 n3", ""},
		{"a*1&b*1", 2, "", "n3 does not have the features"},
		{"[a*1&b*1]", 2, "", "use a heterogeneous job"},
		{"a*2", 1, "", "needs 2 nodes, but the job requests 1"},
		{"((a))", 1, "", "cannot be read"},
	} {
		nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t)), node(t, "n3", a100(t))}
		nodes[0].Features, nodes[1].Features, nodes[2].Features = []string{"a"}, []string{"b"}, []string{"b", "c"}
		w, behind := waits(1, "7g.40gb", 1, c.nodes), waits(2, "3g.20gb", 1, 3)
		w.Features = slurm.ParseConstraint(c.text)
		snapshot := snapshotOf(nodes, w, behind)
		v := New(snapshot, withLifetime, nil)
		p := v.Plan()
		on := map[uint32]string{}
		for k, spots := range p.Spots {
			on[v.Waiting[k].ID] = strings.Join(slices.Sorted(slices.Values(v.On(spots))), " ")
		}
		if on[1] != c.on || (on[2] != "") != (c.on == "") {
			t.Errorf("%s on %d nodes: planned on %q, the next job on %q", c.text, c.nodes, on[1], on[2])
		}
		snapshot.Queue.All = []slurm.Job{*w.Job}
		e, err := Explain(snapshot, withReach, 1)
		if err != nil || (e.Verdict == Nowhere) != (c.on == "") || !strings.Contains(e.Text, c.says) {
			t.Errorf("%s on %d nodes: %s: %s %v", c.text, c.nodes, e.Verdict, e.Text, err)
		}
	}
}
