package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestMembers checks that the plan leaves out a node that the caller excludes, one whose state cannot be parsed, and
// one on which slurmctld starts no jobs.
func TestMembers(t *testing.T) {
	const profile = "7g.40gb"
	for _, c := range []struct {
		what string
		do   func(n *slurm.Node)
	}{
		{"down", func(n *slurm.Node) { n.States = []string{"DOWN"} }},
		{"draining", func(n *slurm.Node) { n.States = []string{"MIXED", "DRAIN"} }},
		{"not responding", func(n *slurm.Node) { n.States = []string{"IDLE", "NOT_RESPONDING"} }},
		{"slurmd has not registered", func(n *slurm.Node) { n.Unregistered = true }},
		{"its agent has closed it", func(n *slurm.Node) { n.Extra = WithState(n.Extra, "") }},
		{"another version", func(n *slurm.Node) { n.Extra = "caelum=99;none" }},
		{"left out", func(n *slurm.Node) { n.Reason = "left out" }},
	} {
		nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
		c.do(&nodes[0])
		v := New(
			snapshotOf(nodes, waits(1, profile, 1, 1), waits(2, profile, 1, 1)),
			withLifetime,
			func(n slurm.Node) bool { return n.Reason == "left out" },
		)
		p := v.Plan()
		if v.Member("n1") >= 0 || !slices.Equal(v.On(p.Spots[0]), []string{"n2"}) || p.Spots[1] != nil ||
			p.Reserved == nil ||
			p.Reserved.Job != 1 {
			t.Errorf(
				"%s: members %d, jobs on %v and %v, reserved %+v",
				c.what,
				len(v.Members),
				v.On(p.Spots[0]),
				v.On(p.Spots[1]),
				p.Reserved,
			)
		}
	}
	// The plan places a job with a node list only on the listed nodes.
	there := waits(1, profile, 1, 1)
	there.ReqNodes = []string{"n2"}
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	v := New(snapshotOf(nodes, there), withLifetime, nil)
	if on := v.On(v.Plan().Spots[0]); !slices.Equal(on, []string{"n2"}) {
		t.Errorf("a job for n2 is planned on %v", on)
	}
}

// TestNodeNotForJob checks that the plan places no job on a node that has too few CPUs for it, that is reserved for
// other jobs, or that slurmctld would not choose for another reason.
func TestNodeNotForJob(t *testing.T) {
	const profile = "7g.40gb"
	for _, c := range []struct {
		what string
		do   func(n *slurm.Node, w *slurm.Waiting)
		on   string
	}{
		{"no obstacle", func(*slurm.Node, *slurm.Waiting) {}, "n1"},
		{"too few CPUs are free", func(n *slurm.Node, w *slurm.Waiting) {
			n.CPUs, n.CPUsFree, w.CPUs = 64, 3, 4
		}, "n2"},
		{"the node has too few CPUs", func(n *slurm.Node, w *slurm.Waiting) {
			n.CPUs, n.CPUsFree, w.CPUs = 2, 2, 4
		}, "n2"},
		{"the job needs the whole node", func(n *slurm.Node, w *slurm.Waiting) {
			n.CPUs, n.CPUsFree, w.Exclusive = 64, 63, true
		}, "n2"},
		{"the node is reserved", func(n *slurm.Node, w *slurm.Waiting) {
			n.Reservations = []slurm.Reservation{{Name: "r", Whole: true}}
		}, "n2"},
		{"a part of the node is reserved", func(n *slurm.Node, w *slurm.Waiting) {
			n.Reservations = []slurm.Reservation{{Name: "r"}}
		}, "n1"},
		{"the node is reserved for this job", func(n *slurm.Node, w *slurm.Waiting) {
			n.Reservations, w.Reservation = []slurm.Reservation{{Name: "r", Whole: true}}, "r"
		}, "n1"},
		{"the job names another GPU model", func(n *slurm.Node, w *slurm.Waiting) {
			n.Gres, w.PerNode = slices.Clone(n.Gres), append(w.PerNode, slurm.GRES{Name: "gpu", Type: "a100", Count: 1})
			n.Gres[0].Type = "h100"
		}, "n2"},
		{"the job names no GPU model", func(n *slurm.Node, w *slurm.Waiting) {
			w.PerNode = append(w.PerNode, slurm.GRES{Name: "gpu", Count: 1})
		}, "n1"},
		{"another reservation is for this job", func(n *slurm.Node, w *slurm.Waiting) {
			w.Reservation = "elsewhere"
		}, ""},
		{"slurmctld has passed the offer over", func(n *slurm.Node, w *slurm.Waiting) {
			*n, w.LastSchedEval = offering(*n, "mig:7g.40gb:1"), time.Unix(1e9, 0)
		}, "n2"},
		{"slurmctld has seen the offer for 3 s only", func(n *slurm.Node, w *slurm.Waiting) {
			*n, w.LastSchedEval = offering(*n, "mig:7g.40gb:1"), time.Unix(1e9-57, 0)
		}, "n1"},
		{"slurmctld has passed the job over for an earlier one", func(n *slurm.Node, w *slurm.Waiting) {
			*n, w.LastSchedEval, w.Reason = offering(*n, "mig:7g.40gb:1"), time.Unix(1e9, 0), "Priority"
		}, "n1"},
	} {
		nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
		w := waits(1, profile, 1, 1)
		c.do(&nodes[0], &w)
		v := New(snapshotOf(nodes, w), withLifetime, nil)
		var on string
		if p := v.Plan(); len(v.Jobs) > 0 {
			on = strings.Join(v.On(p.Spots[0]), " ")
		}
		if on != c.on {
			t.Errorf("%s: planned on %q, want %q", c.what, on, c.on)
		}
	}
}

// TestSized checks that a job whose profile Caelum chose can get the equivalent profile of another GPU model, and
// that the slice is offered under the requested profile's name.
func TestSized(t *testing.T) {
	h100 := func() slurm.Node {
		b := model(t, "H100-80GB")
		return node(t, "n2", place.GPU{Model: b, Offerable: plain(b)})
	}
	sized := waits(1, "2g.10gb", 1, 1)
	sized.AdminComment = tags.Size + "2g.10gb"
	changed := sized.Clone()
	changed.AdminComment = tags.Size + "1g.5gb"
	two := waits(1, "2g.10gb", 1, 2)
	two.AdminComment = sized.AdminComment
	for _, c := range []struct {
		what  string
		first slurm.Node
		wants slurm.Waiting
		on    []string
	}{
		{"no room on its own GPU model", node(t, "n1", a100(t, "7g.40gb@0")), sized, []string{"n2"}},
		{"no node with its own GPU model", slurm.Node{Name: "n1", States: []string{"DOWN"}}, sized, []string{"n2"}},
		{"room on its own GPU model", node(t, "n1", a100(t)), sized, []string{"n1"}},
		{"the job named its profile", node(t, "n1", a100(t, "7g.40gb@0")), waits(1, "2g.10gb", 1, 1), nil},
		{"the job has been given another profile since", node(t, "n1", a100(t, "7g.40gb@0")), changed, nil},
		{"on two nodes", node(t, "n1", a100(t)), two, []string{"n1", "n2"}},
	} {
		v := New(snapshotOf([]slurm.Node{c.first, h100()}, c.wants), withLifetime, nil)
		p := v.Plan()
		var on []string
		if len(v.Jobs) > 0 {
			on = v.On(p.Spots[0])
		}
		if !slices.Equal(on, c.on) {
			t.Errorf("%s: planned on %v, want %v", c.what, on, c.on)
		}
		counts := v.Counts(p, v.Member("n2"))
		if there := slices.Contains(c.on, "n2"); there && counts["2g.10gb"] != 1 || !there && counts["2g.10gb"] != 0 {
			t.Errorf("%s: the H100 offers %v", c.what, counts)
		}
	}
}

// TestForgotten checks that a node does not offer slices under the name of another GPU model's profile while
// slurmctld's used count of this profile is lower than the number of slices that jobs hold.
func TestForgotten(t *testing.T) {
	b := model(t, "H100-80GB")
	n := node(t, "n2", place.GPU{Model: b, Offerable: plain(b)})
	sized := waits(1, "2g.10gb", 1, 1)
	sized.AdminComment = tags.Size + "2g.10gb"
	has := slurm.Job{ID: 7, State: "RUNNING", Nodes: []string{"n2"}, PerNode: sized.PerNode}
	ending := has
	ending.State = "COMPLETING"
	own := has
	own.PerNode = []slurm.GRES{{Name: "mig", Type: "1g.10gb", Count: 1}}
	for _, c := range []struct {
		what    string
		used    int
		there   slurm.Job
		planned bool
	}{
		{"forgotten", 0, has, false},
		{"counted", 1, has, true},
		{"ended", 0, ending, true},
		{"a profile of its own GPU model", 0, own, true},
	} {
		n.GresUsed = []slurm.GRES{{Name: "mig", Type: "2g.10gb", Count: c.used}}
		snapshot := snapshotOf([]slurm.Node{n}, sized)
		snapshot.Queue.All = []slurm.Job{c.there, *sized.Job}
		v := New(snapshot, withLifetime, nil)
		if p := v.Plan(); (len(v.Jobs) > 0 && p.Spots[0] != nil) != c.planned {
			t.Errorf("%s: planned %v, want %v", c.what, !c.planned, c.planned)
		}
	}
}

// TestWithoutMIG checks that a job whose profile Caelum chose can get a GPU without MIG that has enough memory,
// although all such GPUs have the same profile, and that a job with a named profile cannot.
func TestWithoutMIG(t *testing.T) {
	gpu := func(name string, mib uint64) place.GPU {
		b := mig.Without(name).WithFull(mib)
		return place.GPU{Model: b, Offerable: b.Full(), Idle: b.Full()}
	}
	nodes := []slurm.Node{
		node(t, "n1", gpu("Tesla V100-SXM2-32GB", 32768)), node(t, "n2", gpu("NVIDIA L40S", 46068)),
		node(t, "n3", gpu("Tesla T4", 15360), gpu("NVIDIA L40S", 46068)),
	}
	named, first, second, third := waits(1, "7g.40gb", 1, 1), waits(2, "7g.40gb", 1, 1), waits(3, "2g.10gb", 1, 1),
		waits(4, mig.Full, 1, 1)
	first.AdminComment, second.AdminComment = "caelum:sized=7g.40gb", "caelum:sized=2g.10gb"
	first.ReqNodes, third.ReqNodes = []string{"n2"}, []string{"n3"}
	v := New(snapshotOf(nodes, named, first, second, third), withLifetime, nil)
	p := v.Plan()
	var on [][]string
	for _, spots := range p.Spots {
		on = append(on, v.On(spots))
	}
	if len(on) != 3 || !slices.Equal(on[0], []string{"n2"}) || !slices.Equal(on[1], []string{"n1"}) ||
		!slices.Equal(on[2], []string{"n3"}) { // the plan leaves out the named profile, which no node has
		t.Errorf("the jobs are planned on %v", on)
	}
	first.ReqNodes = nil
	v = New(snapshotOf(nodes, first), withLifetime, nil)
	if on := v.On(v.Plan().Spots[0]); slices.Equal(on, []string{"n1"}) {
		t.Errorf("a job that may need 40 GB is planned on %v", on)
	}
	first.ReqNodes = []string{"n1"} // the job may fit, and its user asked for this node
	v = New(snapshotOf(nodes, first), withLifetime, nil)
	if on := v.On(v.Plan().Spots[0]); !slices.Equal(on, []string{"n1"}) {
		t.Errorf("a job for n1 is planned on %v", on)
	}
}

// TestFractions checks which jobs are planned on GPUs with fractions: not a job that needs two of them on a node, which
// also must not block others, and a job with a profile of MIG only on a full GPU.
func TestFractions(t *testing.T) {
	b := model(t, "L40S-48GB/4")
	gpu := place.GPU{Model: b, Offerable: b.Open(0, 0)}
	two, nodes, one, sized, named := waits(1, "1f.11gb", 2, 1), waits(2, "2f.22gb", 1, 2), waits(3, "1f.11gb", 1, 1),
		waits(4, "2g.10gb", 1, 1), waits(5, "1g.5gb", 1, 1)
	one.AdminComment, sized.AdminComment = "caelum:sized=1f.11gb", "caelum:sized=2g.10gb"
	v := New(snapshotOf([]slurm.Node{node(t, "n1", gpu), node(t, "n2", gpu, gpu)}, two, nodes, one, sized, named),
		withLifetime, nil)
	p := v.Plan()
	var got []string
	for k, spots := range p.Spots {
		text := fmt.Sprint(v.Waiting[k].ID, ":")
		for _, s := range spots {
			text += " " + v.Pool.GPU(s.GPU).Model.ProfileOf(s.Placement)
		}
		got = append(got, text)
		if len(v.Jobs[k].Wants[0].Sizes) > 0 {
			t.Errorf("job %d can get larger slices: %v", v.Waiting[k].ID, v.Jobs[k].Wants[0].Sizes)
		}
	}
	if want := []string{"2: 2f.22gb 2f.22gb", "3: 1f.11gb", "4: full"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for name, want := range map[string]bool{"1f.11gb": true, "2f.22gb": true, mig.Full: false} {
		if v.Speculative[name] != want {
			t.Errorf("%s is offered speculatively: %v, want %v", name, !want, want)
		}
	}
}
