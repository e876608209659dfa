package plan

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/slurm"
)

func model(t testing.TB, name string) *mig.Model {
	t.Helper()
	b, err := mig.ModelByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func plain(b *mig.Model) (l mig.Layout) {
	for i, p := range b.Profiles {
		if mig.Plain(p) {
			l |= b.OfProfile(i)
		}
	}
	return l
}

// drawGPUs makes the GPUs of a node: any GPU models, any layouts including variants, some instances idle, some units
// blocked.
func drawGPUs(t *rapid.T) []place.GPU {
	gpus := make([]place.GPU, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for k := range gpus {
		if rapid.IntRange(0, 5).Draw(t, "managed") == 0 {
			continue
		}
		all := mig.Models()
		b := all[rapid.IntRange(0, len(all)-1).Draw(t, "board")]
		g := place.GPU{Model: b, Offerable: plain(b)}
		if rapid.IntRange(0, 3).Draw(t, "few") == 0 {
			g.Offerable = b.OfProfile(0)
		}
		m := b.Maximal()
		for i := range m[rapid.IntRange(0, len(m)-1).Draw(t, "layout")].Indices() {
			switch rapid.IntRange(0, 3).Draw(t, "state") {
			case 0:
				g.Idle = g.Idle.With(i)
			case 1:
				g.Blocked |= b.Units(i)
			case 2:
				g.Busy = g.Busy.With(i)
				g.Expect(i, float64(rapid.IntRange(1, 2_000_000_000).Draw(t, "end")))
			}
		}
		gpus[k] = g
	}
	return gpus
}

// TestTextTells checks that the text of a node gives the units that are taken, their expected ends and the placements
// that may be offered.
func TestTextTells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := drawGPUs(t)
		since := time.Unix(int64(rapid.IntRange(0, 2_000_000_000).Draw(t, "since")), 0)
		private := rapid.Bool().Draw(t, "private")
		text := Text(State{gpus, since, private})
		if strings.ContainsAny(text, " \n\t\"") {
			t.Fatalf("not one word: %s", text)
		}
		read, err := Parse(text)
		if err != nil || len(read.GPUs) != len(gpus) || !read.Since.Equal(since) {
			t.Fatalf("%d GPUs of %d, since %v, %v: %s", len(read.GPUs), len(gpus), read.Since, err, text)
		}
		for k, g := range gpus {
			r := read.GPUs[k]
			if (g.Model == nil) != (r.Model == nil) {
				t.Fatalf("GPU %d: managed %v", k, r.Model != nil)
			}
			if g.Model == nil {
				continue
			}
			if r.Model.Occupied(r.Busy)|r.Blocked != g.Model.Occupied(g.Busy)|g.Blocked {
				t.Fatalf("GPU %d: other units are taken: %s", k, text)
			}
			for i := range g.Model.Placements {
				pl := g.Model.Placements[i]
				name := g.Model.Profiles[pl.Profile].Name
				j, known := r.Model.Placement(name, pl.Start)
				if g.Offerable.Has(i) != (known && r.Offerable.Has(j)) {
					t.Fatalf("GPU %d: %s may be given out: %v", k, g.Model.Label(i), g.Offerable.Has(i))
				}
				if !known {
					continue
				}
				if g.Busy.Has(i) != r.Busy.Has(j) || g.Idle.Has(i) != r.Idle.Has(j) {
					t.Fatalf("GPU %d: %s is in another state", k, g.Model.Label(i))
				}
				if private && r.Ends != nil {
					t.Fatalf("GPU %d: ends are private: %s", k, text)
				}
				if g.Busy.Has(i) && !private && g.Ends[i] != r.Ends[j] {
					t.Fatalf("GPU %d: %s ends at %v, not %v", k, g.Model.Label(i), g.Ends[i], r.Ends[j])
				}
			}
		}
		// Reading and writing a text again changes nothing, so all planners use the same state.
		if again, err := Parse(Text(read)); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%v: the state has changed: %s", err, text)
		}
	})
}

// TestSameModelOnce checks that two nodes of one GPU model have the same *mig.Model, because policies compare GPU
// models by pointer.
func TestSameModelOnce(t *testing.T) {
	b := model(t, "H100-80GB")
	text := Text(State{GPUs: []place.GPU{{Model: b, Offerable: plain(b)}}})
	one, err1 := Parse(text)
	two, err2 := Parse(text)
	if err1 != nil || err2 != nil || one.GPUs[0].Model != two.GPUs[0].Model {
		t.Errorf("%v, %v, %p and %p", err1, err2, one.GPUs[0].Model, two.GPUs[0].Model)
	}
}

// TestExtraOfOthers checks that the administrator's entries in Extra are left as they are.
func TestExtraOfOthers(t *testing.T) {
	for _, c := range []struct{ extra, with, without string }{
		{"", "caelum=1;none", ""},
		{"rack=7", "rack=7 caelum=1;none", "rack=7"},
		{"caelum=0 rack=7 caelum=x", "rack=7 caelum=1;none", "rack=7"},
	} {
		with := Into(c.extra, "1;none")
		if with != c.with || In(with) != "1;none" || Into(with, "") != c.without {
			t.Errorf("%q: %q, read %q, without %q", c.extra, with, In(with), Into(with, ""))
		}
	}
}

// FuzzParse checks that no text makes Parse panic or return a GPU that is not legal. An administrator can write any
// text.
func FuzzParse(f *testing.F) {
	b := model(f, "A30-24GB")
	f.Add(Text(State{GPUs: []place.GPU{{Model: b, Offerable: plain(b), Blocked: 1}, {}}}))
	f.Add("1;board/8;profile/1g.5gb/1/1/7/0.0.0.0/0.1.2;gpu/1g.5gb@0=1,~1g.5gb@1,!80")
	f.Add("1;gpu/;board/99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		for _, g := range s.GPUs {
			if g.Model != nil && (!g.Model.Legal(g.Busy|g.Idle) || g.Busy&g.Idle != 0) {
				t.Errorf("%q: a GPU with an illegal layout", text)
			}
		}
	})
}

const closed = "gpu:a100:7,mig:closed:28"

// node returns a node that can start jobs, with these GPUs and all of gres/mig closed.
func node(t testing.TB, name string, gpus ...place.GPU) slurm.Node {
	t.Helper()
	list, err := slurm.ParseGRES(closed)
	if err != nil {
		t.Fatal(err)
	}
	return slurm.Node{
		Name:       name,
		States:     []string{"IDLE"},
		Partitions: []string{"gpu"},
		Gres:       list,
		Extra:      Into("", Text(State{GPUs: gpus, Since: time.Unix(1e9-60, 0)})),
	}
}

func a100(t testing.TB, busy ...string) place.GPU {
	t.Helper()
	b := model(t, "A100-40GB")
	g := place.GPU{Model: b, Offerable: plain(b)}
	for _, label := range busy {
		profile, start, _ := strings.Cut(label, "@")
		i, ok := b.Placement(profile, int(start[0]-'0'))
		if !ok {
			t.Fatal(label)
		}
		g.Hold(i, 1e9+100)
	}
	return g
}

func waits(id uint32, profile string, count, nodes int) slurm.Waiting {
	return slurm.Waiting{
		Elements: 1,
		Job: slurm.Job{ID: id, State: "PENDING", Reason: "Resources", Priority: 1, Partition: "gpu", NumNodes: nodes,
			TimeLimit: time.Hour, PerNode: []slurm.GRES{{Name: "mig", Type: profile, Count: count}}},
	}
}

func snapshotOf(nodes []slurm.Node, waiting ...slurm.Waiting) Snapshot {
	return Snapshot{Nodes: nodes, Queue: slurm.Queue{Waiting: waiting}, At: time.Unix(1e9, 0)}
}

// TestOneNodeServes checks that a job's slices are on offer on exactly as many nodes as it requests.
func TestOneNodeServes(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t)), node(t, "n3", a100(t))}
	for _, c := range []struct {
		wants slurm.Waiting
		nodes int
	}{
		{waits(1, "7g.40gb", 1, 0), 1}, {waits(1, "7g.40gb", 1, 2), 2}, {waits(1, "7g.40gb", 1, 3), 3},
	} {
		v := New(snapshotOf(nodes, c.wants), place.QLA{}, nil)
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

// TestMembers checks that no job is planned on a node that starts nothing, cannot be read, or is left out.
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
		{"its agent has closed it", func(n *slurm.Node) { n.Extra = Into(n.Extra, "") }},
		{"another version", func(n *slurm.Node) { n.Extra = "caelum=99;none" }},
		{"left out", func(n *slurm.Node) { n.Reason = "left out" }},
	} {
		nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
		c.do(&nodes[0])
		v := New(
			snapshotOf(nodes, waits(1, profile, 1, 1), waits(2, profile, 1, 1)),
			place.QLA{},
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
	// A job with a node list is planned on these nodes only.
	there := waits(1, profile, 1, 1)
	there.ReqNodes = []string{"n2"}
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	v := New(snapshotOf(nodes, there), place.QLA{}, nil)
	if on := v.On(v.Plan().Spots[0]); !slices.Equal(on, []string{"n2"}) {
		t.Errorf("a job for n2 is planned on %v", on)
	}
}

// TestNodeNotForJob checks that a job is not planned on a node that has no CPUs for it, that a reservation holds, or on
// which slurmctld would not start it.
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
		v := New(snapshotOf(nodes, w), place.QLA{}, nil)
		var on string
		if p := v.Plan(); len(v.Jobs) > 0 {
			on = strings.Join(v.On(p.Spots[0]), " ")
		}
		if on != c.on {
			t.Errorf("%s: planned on %q, want %q", c.what, on, c.on)
		}
	}
}

// The explanation of the first waiting job says that the job lacks memory where there is room for it, even if no room
// is reserved for it.
func TestFirstLacksMemory(t *testing.T) {
	held := a100(t)
	whole, _ := held.Model.Placement("7g.40gb", 0)
	held.Hold(whole, math.Inf(1))
	full, roomy := node(t, "n1", held), node(t, "n2", a100(t, "4g.20gb@0"))
	for _, n := range []*slurm.Node{&full, &roomy} {
		n.Memory, n.MemoryFree = 256_000, 56_000
	}
	full.MemoryFree = 256_000
	first, second := waits(1, "1g.5gb", 1, 1), waits(2, "1g.5gb", 1, 1)
	first.Memory, second.Memory = 200_000, 200_000
	other := slurm.Job{
		ID:        9,
		State:     "RUNNING",
		Nodes:     []string{"n2"},
		Memory:    200_000,
		Start:     time.Unix(1e9-10, 0),
		TimeLimit: 5 * time.Minute,
	}
	snapshot := snapshotOf([]slurm.Node{full, roomy}, first, second)
	snapshot.Queue.All = []slurm.Job{first.Job, second.Job, other}
	for _, id := range []uint32{1, 2} {
		e, err := Explain(snapshot, place.Lifetime{}, id)
		if err != nil || e.Verdict != Lacks || !strings.Contains(e.Text, "56000 MiB of memory free") {
			t.Errorf("job %d: %+v, %v", id, e, err)
		}
	}
}

// slurmctld starts no --exclusive job on a node of which it counts GRES as used, even if no job holds them.
func TestLacksUnusedNode(t *testing.T) {
	w := waits(1, "7g.40gb", 1, 1)
	w.Exclusive = true
	n := node(t, "n1", a100(t), a100(t))
	for _, used := range []int{0, 1} {
		n.GresUsed = []slurm.GRES{{Name: "mig", Type: "2g.10gb", Count: used}}
		snapshot := snapshotOf([]slurm.Node{n}, w)
		snapshot.Queue.All = []slurm.Job{w.Job}
		e, err := Explain(snapshot, place.Lifetime{}, 1)
		if err != nil || (e.Verdict == Lacks) != (used > 0) || used > 0 && !strings.Contains(e.Text, "--exclusive") {
			t.Errorf("%d used: %+v, %v", used, e, err)
		}
	}
}

// A job that lacks memory keeps no GPU from other jobs, on any number of nodes and with any reason for which slurmctld
// lets it wait.
func TestLacksMemory(t *testing.T) {
	one, two := waits(1, "7g.40gb", 2, 1), waits(1, "7g.40gb", 2, 2)
	one.Memory, two.Memory = 200_000, 400_000
	other := one
	other.ID = 2
	component := two
	component.HetJob = 1
	small := waits(3, "7g.40gb", 2, 1)
	small.Memory = 1000
	for what, lack := range map[string][]slurm.Waiting{
		"on two nodes": {two}, "two jobs": {one, other}, "a component": {component},
	} {
		for _, reason := range []string{"Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:mig-catalog[1-2]"} {
			nodes := []slurm.Node{node(t, "n1", a100(t), a100(t)), node(t, "n2", a100(t), a100(t))}
			for k := range nodes {
				nodes[k].Memory, nodes[k].MemoryFree = 256_000, 56_000
			}
			for k := range lack {
				lack[k].Reason = reason
			}
			v := New(snapshotOf(nodes, append(slices.Clone(lack), small)...), place.QLA{}, nil)
			p := v.Plan()
			if last := len(p.Spots) - 1; len(p.Spots[last]) != 2 {
				t.Errorf("%s, %s: the small job is planned at %v", what, reason, p.Spots[last])
			}
			for k := range lack {
				if p.Spots[k] != nil {
					t.Errorf("%s, %s: job %d is planned", what, reason, v.Jobs[k].ID)
				}
			}
		}
	}
	// The job has room where its memory is free. A request for more memory than a node has counts as all of its memory.
	nodes := []slurm.Node{node(t, "n1", a100(t), a100(t)), node(t, "n2", a100(t), a100(t))}
	nodes[0].Memory, nodes[0].MemoryFree = 256_000, 56_000
	nodes[1].Memory, nodes[1].MemoryFree = 128_000, 128_000
	v := New(snapshotOf(nodes, one, small), place.QLA{}, nil)
	if p := v.Plan(); !slices.Equal(v.On(p.Spots[0]), []string{"n2"}) || p.Spots[1] == nil {
		t.Errorf("planned at %v", p.Spots)
	}
}

// A plan places one held job of each user. The user's other held jobs keep nothing from other jobs.
func TestHeldInTurn(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t)), node(t, "n3", a100(t))}
	held := func(id, uid uint32, on string) slurm.Waiting {
		w := waits(id, "7g.40gb", 1, 1)
		w.Priority, w.Reason, w.AdminComment, w.UID, w.ReqNodes = 0, "JobHeldUser", slurm.TagHeld, uid, []string{on}
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
		v := New(snapshotOf(nodes, c.jobs...), place.QLA{}, nil)
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
	// There is no room for the first job: the second is placed.
	nodes[0] = node(t, "n1", a100(t, "1g.5gb@0"))
	v := New(snapshotOf(nodes, held(1, 1000, "n1"), held(2, 1000, "n2")), place.QLA{}, nil)
	if p := v.Plan(); p.Spots[0] != nil || p.Spots[1] == nil {
		t.Errorf("planned at %v", p.Spots)
	}
}

// A job that slurmctld does not start, although its slices have been on offer for minutes, comes after all other jobs
// for a while.
func TestUnstarted(t *testing.T) {
	shows := offering(node(t, "n1", a100(t)), "mig:7g.40gb:1")
	stuck, other := waits(1, "7g.40gb", 1, 1), waits(2, "3g.20gb", 1, 1)
	stuck.Reason = "Priority"
	task := stuck
	task.ArrayTask = "3-5"
	var u Unstarted
	served := func(after time.Duration, first slurm.Waiting, evaluated time.Duration) uint32 {
		first.LastSchedEval = time.Unix(1e9, 0).Add(evaluated)
		snapshot := snapshotOf([]slurm.Node{shows}, first, other)
		snapshot.At = time.Unix(1e9, 0).Add(after)
		v := New(u.Behind(snapshot), place.QLA{}, nil)
		p := v.Plan()
		u.Follow(v, p, snapshot.At)
		for k, spots := range p.Spots {
			if spots != nil && v.Jobs[k].Wants[0].Profile == "7g.40gb" {
				return 1
			}
		}
		return 2
	}
	for _, c := range []struct {
		what             string
		after, evaluated time.Duration
		job              slurm.Waiting
		want             uint32
	}{
		{"at first", 0, 0, stuck, 1},
		{"before its time", patience, patience, stuck, 1},
		{"slurmctld has not considered it", 2 * patience, 0, stuck, 1},
		{"slurmctld has considered it", 2*patience + time.Second, patience, stuck, 1},
		{"it comes last", 2*patience + 2*time.Second, patience, stuck, 2},
		{"another task of the array", 2*patience + 3*time.Second, patience, task, 1},
		{"it still comes last", 2*patience + backTime, patience, stuck, 2},
		{"the time is over", 2*patience + backTime + 2*time.Second, patience, stuck, 1},
	} {
		if got := served(c.after, c.job, c.evaluated); got != c.want {
			t.Errorf("%s: job %d is served", c.what, got)
		}
	}
}

// TestHeadHasItsRoom checks that the room that becomes free first is reserved for the first job that has to wait, on
// one node only, and that jobs that end before may use it.
func TestHeadHasItsRoom(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t, "4g.20gb@0")), node(t, "n2", a100(t, "4g.20gb@0"))}
	short := waits(3, "3g.20gb", 1, 1)
	short.TimeLimit = time.Minute
	v := New(
		snapshotOf(nodes, waits(1, "7g.40gb", 1, 1), waits(2, "2g.10gb", 1, 1), waits(4, "2g.10gb", 1, 1), short),
		place.Reach,
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

// TestOverrun checks that a slice whose expected end has passed is expected to end soon.
func TestOverrun(t *testing.T) {
	g := a100(t, "7g.40gb@0")
	for i := range g.Busy.Indices() {
		g.Expect(i, 1e9-500)
	}
	v := New(snapshotOf([]slurm.Node{node(t, "n1", g)}, waits(1, "7g.40gb", 1, 1)), place.QLA{}, nil)
	if p := v.Plan(); p.Spots[0] != nil || p.Reserved == nil || p.Reserved.At != 1e9+overdue {
		t.Errorf("%v, %+v", p.Spots[0], p.Reserved)
	}
}

// TestArray checks that the tasks of an array that are one entry of the queue count as separate jobs, up to what the
// cluster can hold.
func TestArray(t *testing.T) {
	w := waits(1, "1g.5gb", 1, 1)
	w.Elements = 5
	v := New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), place.Reach, nil)
	p := v.Plan()
	if len(v.Jobs) != 5 || v.Counts(p, 0)["1g.5gb"] != 5 {
		t.Errorf("%d jobs, %v on offer", len(v.Jobs), v.Counts(p, 0))
	}
	w.Elements = 1000
	if v = New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), place.Reach, nil); len(v.Jobs) != 7 {
		t.Errorf("%d jobs for seven slots", len(v.Jobs))
	}
	w.Job.TimeLimit = 0
	v = New(snapshotOf([]slurm.Node{node(t, "n1", a100(t))}, w), place.Reach, nil)
	if limit := v.Jobs[0].TimeLimit; !math.IsInf(limit, 1) {
		t.Errorf("without a time limit, TimeLimit is %v", limit)
	}
}

// TestUnresponsive checks that a node that does not offer what it should is left out after a while, and is in the plan
// again when its state changes.
func TestUnresponsive(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	l := Unresponsive{Patience: 10 * time.Second}
	follow := func(after time.Duration) (members int) {
		snapshot := snapshotOf(nodes, waits(1, "7g.40gb", 1, 1))
		snapshot.At = snapshot.At.Add(after)
		v := New(snapshot, place.QLA{}, func(n slurm.Node) bool { return n.Name != "n2" && l.Out(n, snapshot.At) })
		l.Follow(v, v.Plan(), "n2", snapshot.At)
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

// TestImpossibleJobKeepsNothing checks that a job that could never run keeps no profile from other jobs.
func TestImpossibleJobKeepsNothing(t *testing.T) {
	nodes := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	both := waits(1, "7g.40gb", 1, 1)
	both.PerNode = append(both.PerNode, slurm.GRES{Name: "mig", Type: "1g.5gb", Count: 1})
	for _, impossible := range []slurm.Waiting{waits(1, "1g.5gb", 1, 3), waits(1, "1g.5gb", 8, 1), both} {
		v := New(snapshotOf(nodes, impossible, waits(2, "1g.5gb", 1, 1)), place.QLA{}, nil)
		if p := v.Plan(); len(v.Jobs) != 1 || v.Jobs[0].ID != 2 || p.Spots[0] == nil {
			t.Errorf("%v on %d nodes: %d jobs planned", impossible.PerNode, impossible.NumNodes, len(v.Jobs))
		}
	}
}

// TestHet checks that a het job is planned at the place of its last component that is not held, and not at all while
// one component cannot start.
func TestHet(t *testing.T) {
	one, two := waits(10, "1g.5gb", 1, 1), waits(11, "2g.10gb", 1, 1)
	one.HetJob, two.HetJob, one.Priority, two.Priority = 10, 10, 1, 5
	other := waits(7, "1g.5gb", 1, 1)
	other.Priority = 3
	snapshot := snapshotOf([]slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}, two, other, one)
	ids := func() (all []uint32) {
		for _, j := range New(snapshot, place.QLA{}, nil).Jobs {
			all = append(all, j.ID)
		}
		return all
	}
	if got := ids(); !slices.Equal(got, []uint32{7, 11, 10}) {
		t.Errorf("planned in the order %v", got)
	}
	held := &snapshot.Queue.Waiting[2]
	held.Priority, held.Reason, held.AdminComment = 0, "JobHeldUser", "caelum:held"
	if got := ids(); !slices.Equal(got, []uint32{11, 10, 7}) {
		t.Errorf("planned in the order %v with one component held", got)
	}
	held.Priority, held.AdminComment = 1, ""
	snapshot.Queue.Waiting[2].Reason = "QOSMaxGRESPerUser"
	if got := ids(); !slices.Equal(got, []uint32{7}) {
		t.Errorf("planned: %v", got)
	}
	snapshot.Queue.Waiting[2].Reason = "Resources"
	snapshot.Nodes = snapshot.Nodes[:1]
	if got := ids(); !slices.Equal(got, []uint32{7}) {
		t.Errorf("on one node: planned: %v", got)
	}
}

// A het job that exceeds the limits of a search is left out of the plan.
func TestHetBounds(t *testing.T) {
	nodes := make([]slurm.Node, 20)
	for k := range nodes {
		nodes[k] = node(t, fmt.Sprint("n", k), a100(t))
	}
	job := func(id uint32, profile string, number int) slurm.Waiting {
		w := waits(id, profile, 1, number)
		w.HetJob = 1
		return w
	}
	many, unlike, long := make([]slurm.Waiting, 21), make([]slurm.Waiting, 17), job(1, "1g.5gb", 1)
	for k := range many {
		many[k] = job(uint32(k+1), "1g.5gb", 1)
	}
	for k := range unlike {
		unlike[k] = job(uint32(k+1), "1g.5gb", 1)
		unlike[k].TimeLimit = time.Duration(k+1) * time.Minute
	}
	for range 10_000 {
		long.PerNode = append(long.PerNode, slurm.GRES{Name: "mig", Type: "1g.5gb", Count: 1})
	}
	for _, c := range []struct {
		what    string
		jobs    []slurm.Waiting
		planned bool
	}{
		{"as many components as nodes", many[:20], true},
		{"more components than nodes", many, false},
		{"sixteen kinds of component", unlike[:16], true},
		{"more kinds", unlike, false},
		{"more nodes than there are", []slurm.Waiting{job(1, "1g.5gb", 19), job(2, "1g.5gb", 1_000_000)}, false},
		{"all nodes", []slurm.Waiting{job(1, "1g.5gb", 19), job(2, "1g.5gb", 1)}, true},
		{"a long request", []slurm.Waiting{long}, false},
	} {
		v := New(snapshotOf(nodes, c.jobs...), place.QLA{}, nil)
		if got := len(v.Jobs) > 0; got != c.planned {
			t.Errorf("%s: planned: %v", c.what, got)
		}
	}
}

// TestHetWithoutSlices checks that a component without slices gets the first node that slurmctld would use for it.
func TestHetWithoutSlices(t *testing.T) {
	slice, cpus := waits(10, "1g.5gb", 1, 1), waits(11, "", 1, 1)
	cpus.PerNode = nil
	two := []slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}
	plain := slurm.Node{Name: "n0", States: []string{"IDLE"}, Partitions: two[0].Partitions}
	heavy := plain
	heavy.Weight = 10
	pinned := cpus
	pinned.ReqNodes = []string{"n2"}
	another := slice
	another.ID = 12
	three := append(slices.Clone(two), node(t, "n3", a100(t)))
	busy := slices.Clone(two)
	for k := range busy {
		busy[k].CPUs, busy[k].CPUsFree = 64, 1
	}
	many := cpus
	many.CPUs = 4
	for _, c := range []struct {
		what  string
		nodes []slurm.Node
		jobs  []slurm.Waiting
		on    string
	}{
		{"slices first", two, []slurm.Waiting{slice, cpus}, "n1"},
		{"slices second", two, []slurm.Waiting{cpus, slice}, "n2"},
		{"another on the second node", two, []slurm.Waiting{pinned, slice}, "n1"},
		{"a node without GPUs comes first", append([]slurm.Node{plain}, two...), []slurm.Waiting{cpus, slice}, "n1"},
		{"a node without GPUs comes last", append([]slurm.Node{heavy}, two...), []slurm.Waiting{cpus, slice}, "n2"},
		{"between two with slices", three, []slurm.Waiting{slice, cpus, another}, "n1,n3"},
		{"no CPUs now: the slices are kept on offer for one such job", busy, []slurm.Waiting{slice, many}, "n1"},
		{"one node", two[:1], []slurm.Waiting{slice, cpus}, ""},
	} {
		for k := range c.jobs {
			c.jobs[k].HetJob = c.jobs[0].ID
		}
		v := New(snapshotOf(c.nodes, c.jobs...), place.QLA{}, nil)
		p := v.Plan()
		var on []string
		for k, j := range v.Jobs {
			if len(j.Wants) > 0 {
				on = append(on, v.On(p.Spots[k])...)
			}
		}
		if got := strings.Join(on, ","); got != c.on {
			t.Errorf("%s: on %q, want %q", c.what, got, c.on)
		}
	}
}

// TestSized checks that a job whose profile Caelum chose can get the equivalent profile of another GPU model, which is
// then offered under the name of the requested profile.
func TestSized(t *testing.T) {
	h100 := func() slurm.Node {
		b := model(t, "H100-80GB")
		return node(t, "n2", place.GPU{Model: b, Offerable: plain(b)})
	}
	sized := waits(1, "2g.10gb", 1, 1)
	sized.AdminComment = slurm.TagSized + "2g.10gb"
	changed := sized
	changed.AdminComment = slurm.TagSized + "1g.5gb"
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
		v := New(snapshotOf([]slurm.Node{c.first, h100()}, c.wants), place.QLA{}, nil)
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

// TestForgotten checks that a node offers nothing under the name of another GPU model's profile while slurmctld counts
// fewer such slices as used than jobs hold there.
func TestForgotten(t *testing.T) {
	b := model(t, "H100-80GB")
	n := node(t, "n2", place.GPU{Model: b, Offerable: plain(b)})
	sized := waits(1, "2g.10gb", 1, 1)
	sized.AdminComment = slurm.TagSized + "2g.10gb"
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
		snapshot.Queue.All = []slurm.Job{c.there, sized.Job}
		v := New(snapshot, place.QLA{}, nil)
		if p := v.Plan(); (len(v.Jobs) > 0 && p.Spots[0] != nil) != c.planned {
			t.Errorf("%s: planned %v, want %v", c.what, !c.planned, c.planned)
		}
	}
}

// TestLearned checks that a job is expected to run as long as was learned, and that its limit remains its time limit.
func TestLearned(t *testing.T) {
	w := waits(1, "1g.5gb", 1, 1)
	w.AdminComment = slurm.TagRuns + "600"
	if j := Job(w); j.RunTime != 600 || j.TimeLimit != 3600 {
		t.Errorf("%+v", j)
	}
}
