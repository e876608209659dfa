package main

import (
	"fmt"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// TestOnSlices checks which jobs usage --saved simulates on two nodes with two GPUs each: those with slices that also
// fit as whole GPUs, and at most the last mostReplayed of them.
func TestOnSlices(t *testing.T) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	c := sim.Config{GPUs: []*mig.Model{b, b, b, b}, Nodes: []int{2, 2}}
	w := &trace.Workload{Several: 1, Left: []trace.Left{{Reason: trace.NoGPU, Jobs: 9}}, Jobs: []trace.Job{
		{ID: "whole", Compute: 1, Memory: 1},
		{ID: "three on a node", Profile: "1g.5gb", Slices: 3},
		{ID: "four on two nodes", Profile: "1g.5gb", Slices: 4, Nodes: 2},
		{ID: "another model", Profile: "1g.12gb"},
	}}
	for k := range mostReplayed {
		w.Jobs = append(w.Jobs, trace.Job{ID: fmt.Sprint(k), Profile: "1g.5gb", Submit: float64(10 + k)})
	}
	onSlices(w, c)
	if len(w.Jobs) != mostReplayed || w.Jobs[0].ID != "0" || w.Jobs[0].Submit != 0 || w.Several != 0 {
		t.Errorf("%d jobs, the first is %+v", len(w.Jobs), w.Jobs[0])
	}
	const want = "; omitted 1 job: no slices; omitted 1 job: more slices on a node than a node has GPUs; omitted 1 " +
		"job: no GPU has a suitable profile; omitted 1 job: submitted before the last 100000 jobs"
	if got := leftOut(w.Left); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
