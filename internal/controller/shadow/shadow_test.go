package shadow

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

var at = time.Unix(1_900_000_000, 0)

// site returns a trial on n1 with n A100 GPUs whose profiles the driver does not report, and an empty snapshot.
func site(t *testing.T, n int) (*Node, plan.Snapshot) {
	t.Helper()
	settings, err := plan.ParseSettings("lifetime", plan.SizingTightest, 0)
	if err != nil {
		t.Fatal(err)
	}
	var gpus []gpu.GPU
	for k := range n {
		gpus = append(gpus, gpu.GPU{Index: k, Name: "NVIDIA A100-SXM4-40GB",
			Problem: "the driver reports placements only to root; run the command as root"})
	}
	node, err := NewNode("n1", settings, gpus, nil, mig.FullGPUs{}, "2g.10gb")
	if err != nil {
		t.Fatal(err)
	}
	return node, plan.Snapshot{At: at, Nodes: []slurm.Node{
		{Name: "n1", States: []string{"IDLE"}, Partitions: []string{"gpu"}, Gres: gres("gpu", "a100", n)},
	}}
}

func gres(name, kind string, count int) slurm.GRESList {
	return slurm.GRESList{{Name: name, Type: kind, Count: count}}
}

// add adds a job with the given request to a snapshot. A job with a node is running.
func add(s *plan.Snapshot, id uint32, request slurm.GRESList, node string) {
	j := slurm.Job{ID: id, UID: 1000 + id, Partition: "gpu", NumNodes: 1, PerNode: request, State: "PENDING",
		Reason: "Resources", Priority: 1000 - uint64(id), Submit: at.Add(-time.Hour)}
	if node != "" {
		j.State, j.Nodes, j.Start = "RUNNING", []string{node}, at.Add(time.Duration(id)*time.Second)
	} else {
		s.Queue.Waiting = append(s.Queue.Waiting, slurm.Waiting{Job: &j, Elements: 1})
	}
	s.Queue.All = append(s.Queue.All, j)
}

// TestPass tests the jobs of a pass: profiles of jobs with one GPU, several GPUs and slices; running jobs that have no
// room; and waiting jobs.
func TestPass(t *testing.T) {
	node, s := site(t, 2)
	for id := range uint32(5) {
		add(&s, 1+id, gres("gpu", "", 1), "n1") // three of 2g.10gb fit on each GPU
	}
	add(&s, 6, gres("gpu", "a100", 2), "n1") // two whole GPUs do not fit
	add(&s, 7, gres("gpu", "", 1), "n2")
	add(&s, 8, gres("gpu", "", 1), "")
	add(&s, 9, gres("mig", "1g.5gb", 1), "")
	add(&s, 10, gres("gpu", "", 1), "")
	add(&s, 11, slurm.GRESList{}, "")
	before := slices.Clone(s.Queue.All)
	p, err := node.Pass(s)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(jobs []Placed, profile string) (all []uint32) {
		for _, j := range jobs {
			for _, on := range j.Slices {
				if on.Profile == profile {
					all = append(all, j.Job)
				}
			}
		}
		return all
	}
	if got := ids(p.Running, "2g.10gb"); !slices.Equal(got, []uint32{1, 2, 3, 4, 5}) || len(p.Running) != 5 ||
		!slices.Equal(p.NoRoom, []uint32{6}) {
		t.Errorf("running %+v, without room %v", p.Running, p.NoRoom)
	}
	if !slices.Equal(ids(p.Starts, "2g.10gb"), []uint32{8}) || !slices.Equal(ids(p.Starts, "1g.5gb"), []uint32{9}) ||
		len(p.Starts) != 2 {
		t.Errorf("starts %+v", p.Starts)
	}
	if p.Waiting != 1 || p.First == nil || p.First.Job != 10 || p.First.Verdict != plan.First {
		t.Errorf("%d jobs wait, first %+v", p.Waiting, p.First)
	}
	for _, text := range []string{
		"GPU 1 ", "job 6 is running, but its", "jobs that would wait: 1\nreason for job 10: ",
	} {
		if !strings.Contains(p.Text(), text) {
			t.Errorf("the text does not contain %q:\n%s", text, p.Text())
		}
	}
	p.First.Text = "[2J\x1b[31m\n"
	if text := p.Text(); strings.Contains(text, "\x1b") || !strings.HasSuffix(text, "reason for job 10: [2J?[31m?\n") {
		t.Errorf("the text contains control characters:\n%q", text)
	}
	for k, j := range s.Queue.All {
		if !slices.Equal(j.PerNode, before[k].PerNode) || s.Nodes[0].Extra != "" || s.Nodes[0].Gres[0].Count != 2 {
			t.Error("the pass changed the snapshot")
		}
	}
}

// TestClosed tests that no job would start on a node on which slurmctld starts no jobs.
func TestClosed(t *testing.T) {
	node, s := site(t, 1)
	s.Nodes[0].States = []string{"IDLE", "DRAIN"}
	add(&s, 1, gres("gpu", "", 1), "")
	p, err := node.Pass(s)
	if err != nil || p.Closed != "IDLE+DRAIN" || len(p.Starts) > 0 || len(p.Offers) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestBesideAgents tests that the plan covers the nodes with agents, and that slurmctld starts the first job on the
// first node.
func TestBesideAgents(t *testing.T) {
	node, s := site(t, 1)
	other, o := site(t, 1)
	other.Name = "n0"
	first := o.Nodes[0]
	first.Name = "n0"
	first.Extra = agentText(t, other, o)
	s.Nodes = append([]slurm.Node{first}, s.Nodes...)
	for id := range uint32(7) {
		add(&s, 1+id, gres("gpu", "", 1), "")
	}
	p, err := node.Pass(s)
	if err != nil || len(p.Starts) != 3 || p.Starts[0].Job != 4 || p.Waiting != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// agentText returns the entry that an agent with empty GPUs writes into the node's Extra.
func agentText(t *testing.T, n *Node, s plan.Snapshot) string {
	t.Helper()
	var p Pass
	return plan.WithState("", plan.Text(plan.State{GPUs: n.runningOn(s.Queue.All, &p), Since: at}))
}

// TestNewNode tests the GPUs of a trial.
func TestNewNode(t *testing.T) {
	settings, _ := plan.ParseSettings("lifetime", plan.SizingTightest, 0)
	a100 := gpu.GPU{Name: "NVIDIA A100-SXM4-40GB"}
	lost, old := a100, gpu.GPU{Name: "Tesla T4", Model: mig.Without("Tesla T4"), Full: true, Problem: gpu.WithoutMIG}
	lost.Index, lost.Problem = 1, gpu.Lost
	for name, c := range map[string]struct {
		gpus []gpu.GPU
		want string
	}{
		"a lost GPU beside a good one": {[]gpu.GPU{a100, lost, old}, ""},
		"a lost GPU":                   {[]gpu.GPU{lost}, "no GPU on this node supports MIG"},
		"a GPU without MIG":            {[]gpu.GPU{old}, "no GPU on this node supports MIG"},
		"no GPU":                       {nil, "no GPU on this node supports MIG"},
	} {
		n, err := NewNode("n1", settings, c.gpus, nil, mig.FullGPUs{}, "2g.10gb")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && (n.Whole != "7g.40gb" || n.gpus[0].Problem != "" || n.gpus[1].Problem == "" ||
			n.gpus[2].Problem == "") {
			t.Errorf("%s: %+v", name, n)
		}
	}
}
