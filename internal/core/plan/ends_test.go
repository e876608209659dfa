package plan

import (
	"math"
	"testing"
	"time"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestPrivateEnds checks that planners take the ends of jobs from slurmctld's queue if the nodes do not publish them,
// and that both sources lead to the same reservations. If the queue does not show the jobs either, the ends must be
// unknown, and planners must not reserve anything.
func TestPrivateEnds(t *testing.T) {
	const now = 1e9
	busy := func(end map[string]float64) place.GPU { return busyUntil(t, end) }
	gpus := map[string][]place.GPU{
		"n1": {
			busy(map[string]float64{"4g.20gb@0": now + 900, "1g.5gb@4": now + 50}),
			busy(map[string]float64{"3g.20gb@0": now + 700}),
		},
		"n2": {busy(map[string]float64{"3g.20gb@0": now + 600, "2g.10gb@4": now + 100})},
	}
	learned := runs(4, "n2", "2g.20gb", 9000) // the equivalent profile of another GPU model
	learned.AdminComment = "caelum:runs=660-660"
	pending := runs(6, "n2", "2g.10gb", 1)
	pending.State = "PENDING"
	all := []slurm.Job{
		pending, runs(1, "n1", "4g.20gb", 900), runs(2, "n1", "1g.5gb", 50), runs(3, "n1", "3g.20gb", 700),
		runs(5, "n2", "2g.10gb", 100), learned,
	}
	reserved := func(private bool, jobs []slurm.Job) *offer.Reservation {
		var nodes []slurm.Node
		for _, name := range []string{"n1", "n2"} {
			n := node(t, name)
			n.Extra = WithState("", Text(State{GPUs: gpus[name], Since: time.Unix(now-60, 0), Private: private}))
			nodes = append(nodes, n)
		}
		snapshot := snapshotOf(nodes, waits(9, "7g.40gb", 1, 1))
		snapshot.Queue.All = jobs
		return New(snapshot, withLifetime, nil).Plan().Reserved
	}
	want := reserved(false, nil)
	if want == nil || want.At != now+600 {
		t.Fatalf("with the ends in the text: %+v", want)
	}
	if got := reserved(true, all); got == nil || got.At != want.At || len(got.Spots) != 1 ||
		got.Spots[0] != want.Spots[0] {
		t.Errorf("with the ends in the queue: %+v, want %+v", got, want)
	}
	if got := reserved(true, nil); got != nil && !math.IsInf(got.At, 1) {
		t.Errorf("without the queue, slices are expected to end at %v", got.At)
	}
	huge := runs(7, "n2", "3g.20gb", 1)
	huge.PerNode[0].Count = math.MaxInt
	if on := runningOn([]*slurm.Job{&huge}, time.Unix(now, 0)); len(on) != maxSlices {
		t.Errorf("a job's request counts as %d slices", len(on))
	}
}

// busyUntil returns an A100 with busy placements. ends maps each placement's label to its expected end.
func busyUntil(t *testing.T, ends map[string]float64) place.GPU {
	g := a100(t)
	for label, end := range ends {
		i, ok := g.Model.Placement(label[:len(label)-2], int(label[len(label)-1]-'0'))
		if !ok {
			t.Fatal(label)
		}
		g.Hold(i, end)
	}
	return g
}

// runs returns a running job with one slice. The job ends the given number of seconds after the time of the snapshot.
func runs(id uint32, node, profile string, end int64) slurm.Job {
	return slurm.Job{
		ID:      id,
		State:   "RUNNING",
		Nodes:   []string{node},
		Start:   time.Unix(1e9-60, 0),
		End:     time.Unix(1e9+end, 0),
		PerNode: []slurm.GRES{{Name: "mig", Type: profile, Count: 1}},
	}
}
