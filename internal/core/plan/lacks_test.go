package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestFirstLacksMemory checks the explanation of the first waiting job, for which no slices are reserved. It must
// mention the missing memory on the node where the slices are free.
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
	snapshot.Queue.All = []slurm.Job{*first.Job, *second.Job, other}
	for _, id := range []uint32{1, 2} {
		e, err := Explain(snapshot, Settings{Policy: place.Lifetime{}}, id)
		if err != nil || e.Verdict != Lacks || !strings.Contains(e.Text, "56000 MiB of memory free") {
			t.Errorf("job %d: %+v, %v", id, e, err)
		}
	}
}

// TestLacksUnusedNode checks a node whose GRES slurmctld counts as used although no job holds any. The plan must not
// start an --exclusive job there, because slurmctld would not do so either.
func TestLacksUnusedNode(t *testing.T) {
	w := waits(1, "7g.40gb", 1, 1)
	w.Exclusive = true
	n := node(t, "n1", a100(t), a100(t))
	for _, used := range []int{0, 1} {
		n.GresUsed = []slurm.GRES{{Name: "mig", Type: "2g.10gb", Count: used}}
		snapshot := snapshotOf([]slurm.Node{n}, w)
		snapshot.Queue.All = []slurm.Job{*w.Job}
		e, err := Explain(snapshot, Settings{Policy: place.Lifetime{}}, 1)
		if err != nil || (e.Verdict == Lacks) != (used > 0) || used > 0 && !strings.Contains(e.Text, "--exclusive") {
			t.Errorf("%d used: %+v, %v", used, e, err)
		}
	}
}

// TestLacksMemory checks that a job that lacks memory does not block a GPU for other jobs, whatever the number of nodes
// and whatever reason slurmctld shows for the job.
func TestLacksMemory(t *testing.T) {
	one, two := waits(1, "7g.40gb", 2, 1), waits(1, "7g.40gb", 2, 2)
	one.Memory, two.Memory = 200_000, 400_000
	other := one.Clone()
	other.ID = 2
	component := two.Clone()
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
			v := New(snapshotOf(nodes, append(slices.Clone(lack), small)...), withLifetime, nil)
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
	// The job can run on the node that has enough free memory. A job that requests more memory than a node has counts
	// as needing all of it.
	nodes := []slurm.Node{node(t, "n1", a100(t), a100(t)), node(t, "n2", a100(t), a100(t))}
	nodes[0].Memory, nodes[0].MemoryFree = 256_000, 56_000
	nodes[1].Memory, nodes[1].MemoryFree = 128_000, 128_000
	v := New(snapshotOf(nodes, one, small), withLifetime, nil)
	if p := v.Plan(); !slices.Equal(v.On(p.Spots[0]), []string{"n2"}) || p.Spots[1] == nil {
		t.Errorf("planned at %v", p.Spots)
	}
}
