package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestHet checks that the plan places a het job at the queue position of its last component that is not held. While
// any component cannot start, the plan must not include the het job.
func TestHet(t *testing.T) {
	one, two := waits(10, "1g.5gb", 1, 1), waits(11, "2g.10gb", 1, 1)
	one.HetJob, two.HetJob, one.Priority, two.Priority = 10, 10, 1, 5
	other := waits(7, "1g.5gb", 1, 1)
	other.Priority = 3
	snapshot := snapshotOf([]slurm.Node{node(t, "n1", a100(t)), node(t, "n2", a100(t))}, two, other, one)
	ids := func() (all []uint32) {
		for _, j := range New(snapshot, withLifetime, nil).Jobs {
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

// TestHetBounds checks that the plan excludes a het job that exceeds maxWants or maxKinds.
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
		v := New(snapshotOf(nodes, c.jobs...), withLifetime, nil)
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
	pinned := cpus.Clone()
	pinned.ReqNodes = []string{"n2"}
	another := slice.Clone()
	another.ID = 12
	three := append(slices.Clone(two), node(t, "n3", a100(t)))
	busy := slices.Clone(two)
	for k := range busy {
		busy[k].CPUs, busy[k].CPUsFree = 64, 1
	}
	many := cpus.Clone()
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
			c.jobs[k] = c.jobs[k].Clone()
			c.jobs[k].HetJob = c.jobs[0].ID
		}
		v := New(snapshotOf(c.nodes, c.jobs...), withLifetime, nil)
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
