package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// TestEqualRequestsShareNodes compares the nodes of random jobs with those that findNodes finds for each job on its
// own. Each job differs from a simple job in a few random fields.
func TestEqualRequestsShareNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	nodes := variedNodes(t, rng)
	changes := requestChanges(rng)
	policy, err := place.ByName(place.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := snapshotOf(nodes)
	snapshot.paused = map[uint32]bool{1: true}
	for k := range 8 { // on each node, a job that will soon release CPUs and memory
		snapshot.Queue.All = append(snapshot.Queue.All, slurm.Job{ID: uint32(9000 + k), State: "RUNNING",
			Nodes: []string{fmt.Sprint("n", k)}, CPUs: 64, Memory: 500, End: snapshot.At.Add(time.Minute),
			PerNode: slurm.GRESList{{Name: "mig", Type: "1g.5gb", Count: 1}}})
	}
	holder := slurm.Job{ID: 8999, State: "RUNNING", Nodes: []string{"n1"},
		PerNode: slurm.GRESList{{Name: "mig", Type: "1g.6gb", Count: 1}}}
	snapshot.Queue.All = append(snapshot.Queue.All, holder)
	v := New(snapshot, Settings{Policy: policy}, nil)
	v.planner.setJobs(snapshot.Queue.All)
	shared := 0
	for id := range uint32(3000) {
		w := waits(id+1, "1g.5gb", 1, 1)
		for range rng.IntN(4) {
			changes[rng.IntN(len(changes))](&w)
		}
		alone := Job(w)
		before := len(v.planner.requests)
		j := v.planner.entry(&w)
		v.setNodes(j)
		v.findNodes(alone, &w, &verdicts{})
		if !reflect.DeepEqual(j.job, alone) {
			t.Fatalf("%+v:\n got %+v\nwant %+v", w, j.job, alone)
		}
		if len(v.planner.requests) == before {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no job shared its nodes with an earlier job")
	}
	t.Logf("%d of 3000 jobs shared their nodes with an earlier job", shared)
}

// requestChanges returns functions that change one field of a job to a random value.
func requestChanges(rng *rand.Rand) []func(*slurm.Waiting) {
	return []func(*slurm.Waiting){
		func(w *slurm.Waiting) { w.Partition = []string{"gpu", "other", "other,gpu"}[rng.IntN(3)] },
		func(w *slurm.Waiting) { w.Reason = []string{"Priority", "Resources"}[rng.IntN(2)] },
		func(w *slurm.Waiting) {
			w.LastSchedEval = time.Unix(1e9, 0).Add(time.Duration(rng.IntN(120)-60) * time.Second)
		},
		func(w *slurm.Waiting) { w.NumNodes = 1 + rng.IntN(3) },
		func(w *slurm.Waiting) { w.ReqNodes = []string{fmt.Sprint("n", rng.IntN(8))} },
		func(w *slurm.Waiting) { w.ExcNodes = []string{fmt.Sprint("n", rng.IntN(8))} },
		func(w *slurm.Waiting) { w.Features = slurm.ParseConstraint([]string{"a", "a&b", "[a|b]"}[rng.IntN(3)]) },
		func(w *slurm.Waiting) { w.Reservation = "r" },
		func(w *slurm.Waiting) { w.MinCPUs = 16 * rng.IntN(4) },
		func(w *slurm.Waiting) { w.TmpDisk = rng.IntN(3) },
		func(w *slurm.Waiting) { w.Sockets = rng.IntN(4) },
		func(w *slurm.Waiting) { w.CoresPerSocket = 8 * rng.IntN(4) },
		func(w *slurm.Waiting) { w.ThreadsPerCore = rng.IntN(4) },
		func(w *slurm.Waiting) { w.CPUs = 10 * rng.IntN(6) },
		func(w *slurm.Waiting) { w.Memory = 100 * rng.IntN(6) },
		func(w *slurm.Waiting) { w.Exclusive = true },
		func(w *slurm.Waiting) { w.UID = uint32(rng.IntN(2)) },
		func(w *slurm.Waiting) { w.HetJob = 9 },
		func(w *slurm.Waiting) { w.AdminComment = tags.Size + w.PerNode[0].Type },
		func(w *slurm.Waiting) { w.PerNode[0].Type = []string{"1g.5gb", "2g.10gb", "1g.6gb"}[rng.IntN(3)] },
		func(w *slurm.Waiting) { w.PerNode = append(w.PerNode, slurm.GRES{Name: "gpu", Type: "a30", Count: 1}) },
		func(w *slurm.Waiting) { w.TimeLimit = time.Duration(rng.IntN(9)) * time.Hour },
	}
}

// variedNodes returns nodes that differ in most properties on which a job's eligibility depends.
func variedNodes(t *testing.T, rng *rand.Rand) (nodes []slurm.Node) {
	for k := range 8 {
		n := node(t, fmt.Sprint("n", k), a100(t), a100(t, "1g.5gb@0"))
		n.CPUs, n.CPUsFree, n.Memory, n.MemoryFree = 32+rng.IntN(32), rng.IntN(64), 500, rng.IntN(500)
		n.Sockets, n.CoresPerSocket = 1+rng.IntN(2), 8+8*rng.IntN(3)
		n.ThreadsPerCore, n.TmpDisk = 1+rng.IntN(2), rng.IntN(3)
		n.Features = [][]string{nil, {"a"}, {"b"}, {"a", "b"}}[rng.IntN(4)]
		n.Partitions = [][]string{{"gpu"}, {"other"}, {"gpu", "other"}}[rng.IntN(3)]
		if rng.IntN(4) == 0 {
			n.Reservations = []slurm.Reservation{{Name: "r", Whole: rng.IntN(2) == 0}}
		}
		n.Gres = append(n.Gres, slurm.GRES{Name: "mig", Type: "1g.5gb", Count: rng.IntN(3)})
		if rng.IntN(3) == 0 {
			n.GresUsed = slurm.GRESList{{Name: "mig", Type: "1g.5gb", Count: 1}}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// TestNodesKeyShowsWhereTextsEnd compares the keys of jobs whose node lists differ only in where a name ends.
func TestNodesKeyShowsWhereTextsEnd(t *testing.T) {
	one, two := waits(1, "1g.5gb", 1, 1), waits(1, "1g.5gb", 1, 1)
	one.ExcNodes, two.ExcNodes = []string{"n1 n2"}, []string{"n1", "n2"}
	a, _ := requestHash(Job(one), one)
	b, _ := requestHash(Job(two), two)
	if a == b {
		t.Errorf("two different jobs have the key %s", a)
	}
}
