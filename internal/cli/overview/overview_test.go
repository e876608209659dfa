package overview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// record returns a node record with the given GPUs. Of its slices, offered are free.
func record(t testing.TB, name, offered string, gpus ...place.GPU) slurm.Node {
	t.Helper()
	n := slurm.Node{Name: name, States: []string{"MIXED"}}
	var err error
	if n.Gres, err = slurm.ParseGRES("gpu:a100:14," + offered + ",mig:closed:40"); err != nil {
		t.Fatal(err)
	}
	if n.GresUsed, err = slurm.ParseGRES("gpu:a100:2(IDX:0-1),mig:1g.5gb:1,mig:closed:0"); err != nil {
		t.Fatal(err)
	}
	n.Extra = plan.WithState("rack=4", plan.Text(plan.State{GPUs: gpus, Since: time.Unix(1e9, 0)}))
	return n
}

// gpuWith returns an A100-40GB with these busy and idle placements.
func gpuWith(t testing.TB, busy, idle []string) place.GPU {
	t.Helper()
	model, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	g := place.GPU{Model: model}
	for k, label := range append(busy, idle...) {
		profile, start, _ := strings.Cut(label, "@")
		i, ok := g.Model.Placement(profile, int(start[0]-'0'))
		if !ok {
			t.Fatal(label)
		}
		if k < len(busy) {
			g.Busy = g.Busy.With(i)
			g.Expect(i, 2e9)
		} else {
			g.Idle = g.Idle.With(i)
		}
	}
	return g
}

func TestNodes(t *testing.T) {
	blocked := gpuWith(t, []string{"3g.20gb@0", "1g.5gb@6"}, []string{"1g.5gb@4"})
	blocked.Blocked = 1 << 5
	unmanaged := slurm.Node{Name: "cpu1", States: []string{"IDLE"}}
	stopped := record(t, "n2", "mig:1g.5gb:0")
	stopped.Extra = "rack=4"
	later := record(t, "n3", "mig:1g.5gb:0")
	later.Extra = "caelum=2;gpu/x"
	nodes := Nodes([]slurm.Node{
		record(t, "n1", "mig:1g.5gb:3,mig:2g.10gb:0", blocked, place.GPU{}), unmanaged, stopped, later,
	})
	if len(nodes) != 3 {
		t.Fatalf("%+v", nodes)
	}
	n := nodes[0]
	if n.Type != "a100" || n.Since != 1e9 || fmt.Sprint(n.Offers) != "map[1g.5gb:2]" || len(n.GPUs) != 2 ||
		n.GPUs[0].Row != "3===~#1." || n.GPUs[1].Units != 0 || n.Problem != "" {
		t.Errorf("%+v", n)
	}
	if got := fmt.Sprint(n.GPUs[0].Instances); got !=
		"[{3g.20gb 0 4 busy 2000000000} {1g.5gb 4 1 idle 0} {1g.5gb 6 1 busy 2000000000}]" {
		t.Error(got)
	}
	if !strings.Contains(nodes[1].Problem, "the agent is not running") ||
		!strings.Contains(nodes[2].Problem, "has version") {
		t.Errorf("%q, %q", nodes[1].Problem, nodes[2].Problem)
	}
	want := Total{Nodes: 3, GPUs: 1, Units: 8, Busy: 5, Idle: 1, Blocked: 1, Slices: 2, Shares: 0.625, Unknown: 2}
	if got := Sum(nodes); got != want {
		t.Errorf("%+v", got)
	}
}

// FuzzNodes checks that every node state that Parse accepts has as many characters in its row as units, and that the
// unit counts match the row. Administrators can write anything into a node's Extra.
func FuzzNodes(f *testing.F) {
	f.Add(plan.Text(plan.State{GPUs: []place.GPU{gpuWith(f, []string{"2g.10gb@0"}, []string{"1g.5gb@2"})}}))
	f.Add("1;board/2;profile/\x1b/1/1/2/0.0.0.0/0.1;gpu/\x1b@0,!2")
	f.Fuzz(func(t *testing.T, text string) {
		r := record(t, "n1", "mig:1g.5gb:0")
		r.Extra = "caelum=" + text
		for _, g := range Nodes([]slurm.Node{r})[0].GPUs {
			if len(g.Row) != g.Units || strings.Count(g.Row, string(RowIdle)) != g.Idle ||
				strings.Count(g.Row, string(RowBlocked)) != g.Blocked ||
				strings.Count(g.Row, string(RowFree)) != g.Units-g.Busy-g.Idle-g.Blocked {
				t.Errorf("%q: %+v", text, g)
			}
		}
	})
}

// TestFractions tests a GPU whose memory is divided. The offers and shares count its units.
func TestFractions(t *testing.T) {
	model, err := mig.ModelByName("L40S-48GB/4")
	if err != nil {
		t.Fatal(err)
	}
	g := place.GPU{Model: model, Offerable: ^mig.Layout(0)}
	for _, at := range []int{0, 3} {
		i, _ := model.Placement("1f.11gb", at)
		g.Busy = g.Busy.With(i)
	}
	nodes := Nodes([]slurm.Node{record(t, "n1", "mig:1f.11gb:2,mig:2f.22gb:0,mig:full:0", g)})
	n := nodes[0].GPUs[0]
	if n.Units != 4 || n.Row != "1..1" || n.Layout != "|1f.11gb|.......|.......|1f.11gb|" ||
		fmt.Sprint(n.Instances) != "[{1f.11gb 0 1 busy 0} {1f.11gb 3 1 busy 0}]" ||
		fmt.Sprint(nodes[0].Offers) != "map[1f.11gb:2]" {
		t.Errorf("%+v", nodes[0])
	}
	if sum := Sum(nodes); sum.GPUs != 1 || sum.Slices != 2 || sum.Shares != 0.5 {
		t.Errorf("%+v", sum)
	}
}
