package plan

import (
	"math"
	"testing"

	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestNoHoldBesideAnEmptyGPU checks that a job starts on an empty GPU even if a slot of lower cost becomes free on
// another GPU in six hours. Nine out of ten GPUs are busy, most of them with jobs without a time limit.
func TestNoHoldBesideAnEmptyGPU(t *testing.T) {
	busy := func(label string, end float64) place.GPU {
		g := a100(t, label)
		for i := range g.Busy.Indices() {
			g.Expect(i, end)
		}
		return g
	}
	shared := busy("4g.20gb@0", math.Inf(1))
	at, _ := shared.Model.Placement("3g.20gb", 4)
	shared.Hold(at, 1e9+21600)
	gpus := []place.GPU{shared}
	for range 8 {
		gpus = append(gpus, busy("7g.40gb@0", math.Inf(1)))
	}
	job := waits(1, "3g.20gb", 1, 1)
	job.TimeLimit = 0
	v := New(snapshotOf([]slurm.Node{node(t, "n1", append(gpus, a100(t))...)}, job), withLifetime, nil)
	p := v.Plan()
	if len(p.Spots[0]) != 1 || p.Spots[0][0].GPU != 9 {
		t.Errorf("planned on %v, reserved %+v", p.Spots[0], p.Reserved)
	}
}
