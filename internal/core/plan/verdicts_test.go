package plan

import (
	"fmt"
	"testing"

	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestPlannerMemory checks that the memory that a Planner keeps for each node and request stays below a byte, and
// that equal sets of nodes are in memory only once. All jobs have different requests, and between the views, nodes
// change, leave and return. The views must be equal to those of New.
func TestPlannerMemory(t *testing.T) {
	const nodes, jobs = 200, 300
	settings, err := ParseSettings(place.DefaultPolicy, SizingAdaptive, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []slurm.Node
	for k := range nodes {
		n := node(t, fmt.Sprint("n", k), a100(t))
		n.CPUs, n.CPUsFree, n.Memory, n.MemoryFree = 64, 64, 1000*(1+k%4), 1000*(k%3)
		all = append(all, n)
	}
	var waiting []slurm.Waiting
	for id := range uint32(jobs) {
		w := waits(id+1, "1g.5gb", 1, 1)
		w.CPUs, w.Memory, w.Reason = 1, 1+int(id)*10, "Priority"
		waiting = append(waiting, w)
	}
	snapshot := snapshotOf(all, waiting...)
	planner := NewPlanner(settings)
	for round := range 6 {
		left := round%2 == 1
		without := func(n slurm.Node) bool { return left && n.Name == "n7" }
		if left { // n7 changes only while it is outside the view
			all[7].MemoryFree = 1000 * (round % 4)
		}
		all[9].MemoryFree = 1000 * round
		got := viewText(planner.View(snapshot, without))
		if x, y := firstDifference(got, viewText(New(snapshot, settings, without))); x != y {
			t.Fatalf("round %d:\n got %s\nwant %s", round, x, y)
		}
	}
	bytes, lists, sets := 0, map[*int]bool{}, map[string]bool{}
	for _, r := range planner.requests {
		bytes += 8 * (cap(r.verdicts.accepts) + cap(r.verdicts.deferred))
		for _, list := range [][]int{r.nodes.eligible, r.nodes.deferred, r.nodes.closed} {
			if len(list) > 0 {
				lists[&list[0]], sets[fmt.Sprint(list)] = true, true
			}
		}
	}
	if n := len(planner.requests); n != jobs || bytes >= n*nodes {
		t.Errorf("%d requests with verdicts on %d nodes take %d bytes", n, nodes, bytes)
	}
	if len(sets) < 4 || len(lists) != len(sets) || len(planner.sets) != 0 {
		t.Errorf("%d lists for %d different sets; %d sets are kept for the next view", len(lists), len(sets),
			len(planner.sets))
	}
}
