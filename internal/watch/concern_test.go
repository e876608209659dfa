package watch

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"caelum/internal/slurm"
)

func gres(t testing.TB, text string) []slurm.GRES {
	t.Helper()
	list, err := slurm.ParseGRES(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// node is one with two GPUs, of which this is on offer or in use, and this in use.
func node(t testing.TB, name, has, used string) slurm.Node {
	n := slurm.Node{Name: name, Addr: name, States: []string{"IDLE"}, Partitions: []string{"gpu"}, Gres: gres(t, "gpu:a100:14,"+has)}
	if used != "" {
		n.GresUsed = gres(t, used)
	}
	return n
}

func job(t testing.TB, id uint32, wants string) slurm.Waiting {
	return slurm.Waiting{Job: slurm.Job{ID: id, State: "PENDING", Priority: 1, Reason: "Resources", Partition: "gpu", PerNode: gres(t, wants)}, Elements: 1}
}

func names(nodes []slurm.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	return all
}

func TestWhoIsTold(t *testing.T) {
	const some = "mig:1g.5gb:2,mig:closed:54"
	idle := []slurm.Node{node(t, "n1", some, ""), node(t, "n2", some, ""), node(t, "n3", some, "")}
	full := node(t, "n1", "mig:7g.40gb:2,mig:closed:54", "gpu:a100:2,mig:7g.40gb:2")
	half := node(t, "n2", "mig:7g.40gb:1,mig:closed:55", "gpu:a100:1,mig:7g.40gb:1")
	down := node(t, "n3", some, "")
	down.States = []string{"DOWN"}
	shut := node(t, "n4", "mig:1g.5gb:0,mig:closed:56", "gpu:a100:1,mig:1g.5gb:1")
	two := job(t, 9, "mig:3g.20gb:1")
	two.NumNodes = 2
	held := job(t, 10, "mig:3g.20gb:1")
	held.Priority, held.Reason = 0, "JobHeldUser"
	later := job(t, 11, "mig:3g.20gb:1")
	later.Reason = "Dependency"
	for _, c := range []struct {
		what    string
		nodes   []slurm.Node
		waiting []slurm.Waiting
		told    int
		more    bool
	}{
		{"it is on offer", idle, []slurm.Waiting{job(t, 1, "mig:1g.5gb:2")}, 0, false},
		{"it is nowhere", idle, []slurm.Waiting{job(t, 1, "mig:3g.20gb:1")}, 1, true},
		{"not enough of it", idle, []slurm.Waiting{job(t, 1, "mig:1g.5gb:3")}, 1, true},
		{"the last is taken by the first in the queue", idle[:1], []slurm.Waiting{job(t, 1, "mig:1g.5gb:2"), job(t, 2, "mig:1g.5gb:1")}, 1, false},
		{"on two nodes", idle, []slurm.Waiting{two}, 2, true},
		{"no GPU is asked for", idle, []slurm.Waiting{job(t, 1, "gpu:1")}, 0, false},
		{"held by its user", idle, []slurm.Waiting{held}, 0, false},
		{"it has to wait for something else", idle, []slurm.Waiting{later}, 0, false},
		{"one node is full", []slurm.Node{full, half}, []slurm.Waiting{job(t, 1, "mig:7g.40gb:1")}, 1, false},
		{"all are full", []slurm.Node{full}, []slurm.Waiting{job(t, 1, "mig:1g.5gb:1")}, 0, false},
		{"a node is down", []slurm.Node{down}, []slurm.Waiting{job(t, 1, "mig:3g.20gb:1")}, 0, false},
		{"slurmctld has read slurm.conf anew", []slurm.Node{full, shut, down}, nil, 1, false},
		{"another partition", idle, []slurm.Waiting{{Job: slurm.Job{ID: 1, State: "PENDING", Priority: 1, Reason: "None", Partition: "cpu", PerNode: gres(t, "mig:3g.20gb:1")}}}, 0, false},
	} {
		var known concern
		wake, more := known.next(c.nodes, c.waiting)
		if len(wake) != c.told || more != c.more {
			t.Errorf("%s: told %v, more %v", c.what, names(wake), more)
		}
	}
}

// Who waits is told to one node after the other, to each once, until it finds what it wants.
func TestOneAfterTheOther(t *testing.T) {
	const some = "mig:1g.5gb:2,mig:closed:54"
	nodes := []slurm.Node{node(t, "n1", some, ""), node(t, "n2", some, ""), node(t, "n3", some, "")}
	waiting := []slurm.Waiting{job(t, 7, "mig:3g.20gb:1")}
	var c concern
	seen := map[string]bool{}
	for k := range 3 {
		wake, more := c.next(nodes, waiting)
		if len(wake) != 1 || seen[wake[0].Name] || more != (k < 2) {
			t.Fatalf("look %d: told %v, more %v, before %v", k, names(wake), more, seen)
		}
		seen[wake[0].Name] = true
	}
	if wake, more := c.next(nodes, waiting); len(wake) > 0 || more {
		t.Errorf("told %v again", names(wake))
	}
	if c.next(nodes, nil); len(c.told) > 0 {
		t.Errorf("%v is remembered of a job that has gone", c.told)
	}
	if wake, _ := c.next(nodes, waiting); len(wake) != 1 {
		t.Errorf("a job that was requeued is told to %v", names(wake))
	}
}

// Jobs begin at different nodes, so that not one node makes room for all.
func TestOrdersDiffer(t *testing.T) {
	const some = "mig:1g.5gb:0,mig:2g.10gb:1,mig:closed:55"
	first := map[string]int{}
	var nodes []slurm.Node
	for k := range 8 {
		nodes = append(nodes, node(t, fmt.Sprintf("gpu%02d", k), some, ""))
	}
	for id := range uint32(800) {
		var c concern
		wake, _ := c.next(nodes, []slurm.Waiting{job(t, 1000+id, "mig:1g.5gb:1")})
		first[wake[0].Name]++
	}
	for _, n := range nodes {
		if first[n.Name] < 50 {
			t.Errorf("%s is the first of %d of 800 jobs: %v", n.Name, first[n.Name], first)
		}
	}
}

// Nobody is told who could not run the job, however nodes and jobs are; and it ends.
func TestTellsNobodyInVain(t *testing.T) {
	profiles := []string{"1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"}
	rapid.Check(t, func(t *rapid.T) {
		var nodes []slurm.Node
		for k := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			n := slurm.Node{Name: fmt.Sprint("n", k), States: []string{rapid.SampledFrom([]string{"IDLE", "MIXED", "DOWN", "DRAIN"}).Draw(t, "state")}, Partitions: []string{"gpu"}}
			n.Gres = []slurm.GRES{{Name: "gpu", Count: 14}, {Name: "mig", Type: "closed", Count: 40}}
			for _, p := range profiles {
				n.Gres = append(n.Gres, slurm.GRES{Name: "mig", Type: p, Count: rapid.IntRange(0, 3).Draw(t, "has")})
				n.GresUsed = append(n.GresUsed, slurm.GRES{Name: "mig", Type: p, Count: rapid.IntRange(0, 3).Draw(t, "used")})
			}
			nodes = append(nodes, n)
		}
		var waiting []slurm.Waiting
		for k := range rapid.IntRange(0, 5).Draw(t, "jobs") {
			w := slurm.Waiting{Job: slurm.Job{ID: uint32(k + 1), State: "PENDING", Priority: 1, Reason: "None", Partition: "gpu", NumNodes: rapid.IntRange(0, 3).Draw(t, "on")}}
			w.PerNode = []slurm.GRES{{Name: "mig", Type: rapid.SampledFrom(profiles).Draw(t, "wants"), Count: rapid.IntRange(1, 3).Draw(t, "count")}}
			waiting = append(waiting, w)
		}
		var c concern
		told := 0
		for {
			wake, more := c.next(nodes, waiting)
			told += len(wake)
			for _, n := range wake {
				if n.Is("DOWN") || n.Is("DRAIN") && !shut(n) {
					t.Fatalf("%s is told, which is %v", n.Name, n.States)
				}
			}
			if !more {
				break
			}
			if len(wake) == 0 {
				t.Fatal("more is to come, and nobody was told")
			}
		}
		if told > len(nodes)*(len(waiting)+1) {
			t.Fatalf("%d told of %d jobs on %d nodes", told, len(waiting), len(nodes))
		}
	})
}
