package watch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

func gres(t testing.TB, text string) slurm.GRESList {
	t.Helper()
	list, err := slurm.ParseGRES(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// node returns an idle node with one A100-40GB, whose agent has published these placements ("3g.20gb@0", or "" for no
// placement).
func node(t testing.TB, name, placements, has, used string) slurm.Node {
	t.Helper()
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	g := place.GPU{Model: b.Select(mig.Plain)}
	for i := range g.Model.Profiles {
		g.Offerable |= g.Model.OfProfile(i)
	}
	for label := range strings.FieldsSeq(placements) {
		profile, start, _ := strings.Cut(label, "@")
		i, ok := g.Model.Placement(profile, int(start[0]-'0'))
		if !ok {
			t.Fatal(label)
		}
		g.Busy = g.Busy.With(i)
	}
	n := slurm.Node{
		Name:       name,
		Addr:       name,
		States:     []string{"IDLE"},
		Partitions: []string{"gpu"},
		Gres:       gres(t, "gpu:a100:7,"+has),
		Extra:      plan.WithState("", plan.Text(plan.State{GPUs: []place.GPU{g}})),
	}
	if used != "" {
		n.GresUsed = gres(t, used)
	}
	return n
}

func job(t testing.TB, id uint32, wants string) slurm.Waiting {
	return slurm.Waiting{
		Job: &slurm.Job{
			ID:        id,
			State:     "PENDING",
			Priority:  1,
			Reason:    "Resources",
			Partition: "gpu",
			PerNode:   gres(t, wants),
		},
		Elements: 1,
	}
}

func snapshotOf(nodes []slurm.Node, waiting ...slurm.Waiting) plan.Snapshot {
	return plan.Snapshot{Nodes: nodes, Queue: slurm.Queue{Waiting: waiting}, At: time.Unix(1e9, 0)}
}

// next makes the plan and returns the nodes to notify.
func (c *notifications) next(snapshot plan.Snapshot) []slurm.Node {
	v, p := c.plan(snapshot)
	return c.due(snapshot, v, p, nil)
}

func names(nodes []slurm.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// follow returns the node with the offers that it has in the plan for the snapshot.
func follow(snapshot plan.Snapshot, name string) slurm.Node {
	v := plan.New(snapshot, plan.Settings{Policy: place.Reach, Tightest: true}, nil)
	k := v.Member(name)
	n := v.Members[k]
	n.Gres = slices.DeleteFunc(slices.Clone(n.Gres), func(g slurm.GRES) bool {
		return g.Name == "mig" && g.Type != slurm.ClosedType
	})
	for profile, count := range v.Counts(v.Plan(), k) {
		n.Gres = append(n.Gres, slurm.GRES{Name: "mig", Type: profile, Count: count})
	}
	return n
}

// settled returns the nodes with the offers that they have in the plan for this queue.
func settled(nodes []slurm.Node, waiting ...slurm.Waiting) (all []slurm.Node) {
	for _, n := range nodes {
		all = append(all, follow(snapshotOf(nodes, waiting...), n.Name))
	}
	return all
}

// TestNotificationSet checks that the watcher notifies the node that must offer a job's slices, and nodes that must
// withdraw offers, but not those whose offers match the plan.
func TestNotificationSet(t *testing.T) {
	const closed = "mig:closed:28"
	idle := []slurm.Node{node(t, "n1", "", closed, ""), node(t, "n2", "", closed, "")}
	rest := settled(idle)
	full := node(t, "n1", "7g.40gb@0", "mig:7g.40gb:1,mig:closed:27", "gpu:a100:1,mig:7g.40gb:1")
	down := slices.Clone(rest)
	down[0].States = []string{"DOWN"}
	big, held := job(t, 1, "mig:7g.40gb:1"), job(t, 1, "mig:7g.40gb:1")
	held.Priority, held.Reason, held.AdminComment = 0, "JobHeldUser", tags.Held
	shut := []slurm.Node{node(t, "n1", "7g.40gb@0", closed, "gpu:a100:1"), rest[1]}
	shut[0].Extra = ""
	for _, c := range []struct {
		what     string
		snapshot plan.Snapshot
		notified string
	}{
		{"offers as planned", snapshotOf(rest), ""},
		{"a job requests more than any node has", snapshotOf(settled(rest), job(t, 1, "mig:7g.40gb:2")), ""},
		{"the slice is offered", snapshotOf(settled(idle, big), big), ""},
		{"the slice of a held job is offered", snapshotOf(settled(idle, held), held), "n1"},
		{"a job that waits for a slice", snapshotOf(settled([]slurm.Node{full, idle[1]}), big), "n2"},
		{"all slices are in use", snapshotOf([]slurm.Node{full}, job(t, 1, "mig:1g.5gb:1")), ""},
		{"no offers yet", snapshotOf(idle), "n1 n2"},
		{"a node is down", snapshotOf(down), "n2"},
		{"slurmctld has read slurm.conf again", snapshotOf(shut), "n1 n2"},
	} {
		known := notifications{settings: plan.Settings{Policy: place.Reach, Tightest: true}}
		if got := names(known.next(c.snapshot)); got != c.notified {
			t.Errorf("%s: notified %q, want %q", c.what, got, c.notified)
		}
	}
}

// TestNotifiedOnce checks that a node is notified again only after its record in slurmctld or its part of the plan has
// changed.
func TestNotifiedOnce(t *testing.T) {
	known := notifications{settings: plan.Settings{Policy: place.Reach, Tightest: true}}
	n := node(t, "n1", "", "mig:closed:28", "")
	want := func(what, notified string, s plan.Snapshot) {
		t.Helper()
		if got := names(known.next(s)); got != notified {
			t.Errorf("%s: notified %q, want %q", what, got, notified)
		}
	}
	want("first", "n1", snapshotOf([]slurm.Node{n}))
	want("again", "", snapshotOf([]slurm.Node{n}))
	want("a job waits", "n1", snapshotOf([]slurm.Node{n}, job(t, 1, "mig:7g.40gb:1")))
	n.Gres = gres(t, "gpu:a100:7,mig:1g.5gb:1,mig:closed:27")
	want("the node's GRES have changed", "n1", snapshotOf([]slurm.Node{n}, job(t, 1, "mig:7g.40gb:1")))
	want("again", "", snapshotOf([]slurm.Node{n}, job(t, 1, "mig:7g.40gb:1")))
	want("the job has ended", "n1", snapshotOf([]slurm.Node{n}))
}
