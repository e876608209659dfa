package plan

import (
	"math"
	"slices"
	"testing"
	"time"

	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestOneNodeServes checks that the plan offers a job's slices on exactly as many nodes as the job requests.
func TestOneNodeServes(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t)), node(t, "n3", a100(t))}
	for _, c := range []struct {
		wants slurm.Waiting
		nodes int
	}{
		{waits(1, "7g.40gb", 1, 0), 1}, {waits(1, "7g.40gb", 1, 2), 2}, {waits(1, "7g.40gb", 1, 3), 3},
	} {
		v := New(snapshotOf(nodes, c.wants), withLifetime, nil)
		p := v.Plan()
		offered := 0
		for m := range v.Members {
			offered += v.Counts(p, m)["7g.40gb"]
		}
		if on := v.On(p.Spots[0]); len(on) != c.nodes || c.nodes > 0 && offered != c.nodes {
			t.Errorf("%d nodes wanted: planned on %v, %d on offer", c.wants.NumNodes, on, offered)
		}
	}
}

// TestHeldInTurn checks that a plan places one held job per user, and that a user's other held jobs do not block
// slices for others.
func TestHeldInTurn(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t)), node(t, "n3", a100(t))}
	held := func(id, uid uint32, on string) slurm.Waiting {
		w := waits(id, "7g.40gb", 1, 1)
		w.Priority, w.Reason, w.AdminComment, w.UID, w.ReqNodes = 0, "JobHeldUser", tags.Held, uid, []string{on}
		return w
	}
	for _, c := range []struct {
		what   string
		jobs   []slurm.Waiting
		served []uint32
	}{
		{"one user", []slurm.Waiting{held(1, 1000, "n1"), held(2, 1000, "n2"), held(3, 1000, "n3")}, []uint32{1}},
		{"two users", []slurm.Waiting{held(1, 1000, "n1"), held(2, 1001, "n2")}, []uint32{1, 2}},
		{"root", []slurm.Waiting{held(1, 0, "n1"), held(2, 0, "n2")}, []uint32{1}},
		{"behind a job of another user", []slurm.Waiting{waits(9, "7g.40gb", 1, 3), held(1, 1000, "n1")}, []uint32{9}},
	} {
		v := New(snapshotOf(nodes, c.jobs...), withLifetime, nil)
		p := v.Plan()
		var served []uint32
		for k, spots := range p.Spots {
			if spots != nil {
				served = append(served, v.Jobs[k].ID)
			}
		}
		if !slices.Equal(served, c.served) {
			t.Errorf("%s: served %v, want %v", c.what, served, c.served)
		}
	}
	// The GPU has no room for the first job, so the plan places the second job.
	nodes[0] = node(t, "n1", a100(t, "1g.5gb@0"))
	v := New(snapshotOf(nodes, held(1, 1000, "n1"), held(2, 1000, "n2")), withLifetime, nil)
	if p := v.Plan(); p.Spots[0] != nil || p.Spots[1] == nil {
		t.Errorf("planned at %v", p.Spots)
	}
}

// TestHeadHasItsRoom checks that the plan reserves the earliest available spots on a single node for the first job
// that must wait. Jobs that end before the reservation begins may use these spots.
func TestHeadHasItsRoom(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t, "4g.20gb@0")), node(t, "n2", a100(t, "4g.20gb@0"))}
	short := waits(3, "3g.20gb", 1, 1)
	short.TimeLimit = time.Minute
	v := New(
		snapshotOf(nodes, waits(1, "7g.40gb", 1, 1), waits(2, "2g.10gb", 1, 1), waits(4, "2g.10gb", 1, 1), short),
		withReach,
		nil,
	)
	p := v.Plan()
	if p.Reserved == nil || p.Reserved.Job != 0 || p.Reserved.At != 1e9+100 {
		t.Fatalf("reserved %+v", p.Reserved)
	}
	kept := v.Pool.GPU(p.Reserved.Spots[0].GPU).Model
	for k := 1; k <= 2; k++ {
		for _, s := range p.Spots[k] {
			if s.GPU == p.Reserved.Spots[0].GPU {
				t.Errorf(
					"job %d, of an hour, is planned at %s of the reserved GPU",
					v.Jobs[k].ID,
					kept.Label(s.Placement),
				)
			}
		}
		if p.Spots[k] == nil && k == 1 {
			t.Errorf("job %d is not planned; there is room on the other node", v.Jobs[k].ID)
		}
	}
	if len(p.Spots[3]) != 1 {
		t.Errorf("a job of a minute has to wait, but ends before the reservation: %v", p.Spots[3])
	}
}

// TestOverrun checks that a slice whose expected end has passed is treated as ending soon.
func TestOverrun(t *testing.T) {
	g := a100(t, "7g.40gb@0")
	for i := range g.Busy.Indices() {
		g.Expect(i, 1e9-500)
	}
	v := New(snapshotOf([]slurm.Node{node(t, "n1", g)}, waits(1, "7g.40gb", 1, 1)), withLifetime, nil)
	if p := v.Plan(); p.Spots[0] != nil || p.Reserved == nil || p.Reserved.At != 1e9+overdue {
		t.Errorf("%v, %+v", p.Spots[0], p.Reserved)
	}
}

// TestArray checks that the plan treats the array tasks of one queue entry as separate jobs, up to the number of slots
// in the cluster.
func TestArray(t *testing.T) {
	w := waits(1, "1g.5gb", 1, 1)
	w.Elements = 5
	v := New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), withReach, nil)
	p := v.Plan()
	if len(v.Jobs) != 5 || v.Counts(p, 0)["1g.5gb"] != 5 {
		t.Errorf("%d jobs, %v on offer", len(v.Jobs), v.Counts(p, 0))
	}
	w.Elements = 1000
	if v = New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), withReach, nil); len(v.Jobs) != 7 {
		t.Errorf("%d jobs for seven slots", len(v.Jobs))
	}
	w.Job.TimeLimit = 0
	v = New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), withReach, nil)
	if limit := v.Jobs[0].TimeLimit; !math.IsInf(limit, 1) {
		t.Errorf("without a time limit, TimeLimit is %v", limit)
	}
}

// TestImpossibleJobKeepsNothing checks that a job that could never run does not block its profile for other jobs.
func TestImpossibleJobKeepsNothing(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	both := waits(1, "7g.40gb", 1, 1)
	both.PerNode = append(both.PerNode, slurm.GRES{Name: "mig", Type: "1g.5gb", Count: 1})
	for _, impossible := range []slurm.Waiting{waits(1, "1g.5gb", 1, 3), waits(1, "1g.5gb", 8, 1), both} {
		v := New(snapshotOf(nodes, impossible, waits(2, "1g.5gb", 1, 1)), withLifetime, nil)
		if p := v.Plan(); len(v.Jobs) != 1 || v.Jobs[0].ID != 2 || p.Spots[0] == nil {
			t.Errorf("%v on %d nodes: %d jobs planned", impossible.PerNode, impossible.NumNodes, len(v.Jobs))
		}
	}
}

// TestLearned checks that a job's expected run time is the learned run time, and that its time limit stays unchanged.
func TestLearned(t *testing.T) {
	w := waits(1, "1g.5gb", 1, 1)
	w.AdminComment = tags.RunTime + "600"
	if j := Job(w); j.RunTime != 600 || j.TimeLimit != 3600 {
		t.Errorf("%+v", j)
	}
}
