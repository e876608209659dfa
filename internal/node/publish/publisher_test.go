package publish

import (
	"io"
	"slices"
	"testing"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/place/placetest"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
	"caelum/internal/slurm/slurmtest"
)

func gres(t *testing.T, text string) slurm.GRESList {
	t.Helper()
	list, err := slurm.ParseGRES(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// TestStaleNeedsEveryGPU checks that the agent reports no stale profile while there is a GPU that it does not manage,
// because the profile may be that GPU's. The `closed` type must never be stale.
func TestStaleNeedsEveryGPU(t *testing.T) {
	card := func() *state.Card {
		return &state.Card{GPU: inventory.GPU{GPU: gpu.GPU{Model: placetest.PlainA100(t)}}}
	}
	n := &state.Node{Cards: []*state.Card{card(), card()}}
	p := &Publisher{Options: Options{Node: n, Log: quiet()}}
	record := slurm.Node{Name: "n1", Gres: gres(t, "gpu:a100:14,mig:1g.5gb:0,mig:1g.24gb:0,mig:closed:56")}
	if p.noteStale(record); !slices.Equal(p.Last().Stale, []string{"1g.24gb"}) {
		t.Errorf("stale: %v", p.Last().Stale)
	}
	n.Cards[1].Problem, n.Cards[1].Model = "the GPU is lost", nil
	if p.noteStale(record); len(p.Last().Stale) != 0 {
		t.Errorf("stale alongside a lost GPU: %v", p.Last().Stale)
	}
}

// TestSameCounts checks that sameCounts ignores the order of the types in slurmctld's list.
func TestSameCounts(t *testing.T) {
	x := gres(t, "gpu:a100:7,mig:1g.6gb:4,mig:2g.10gb:1,mig:closed:23")
	if !sameCounts(x, gres(t, "gpu:a100:7,mig:2g.10gb:1,mig:closed:23,mig:1g.6gb:4")) {
		t.Error("the same list in another order differs")
	}
	for _, other := range []string{
		"gpu:a100:7,mig:1g.6gb:4,mig:2g.10gb:1",
		"gpu:a100:7,mig:1g.6gb:3,mig:2g.10gb:1,mig:closed:23",
		"gpu:h100:7,mig:1g.6gb:4,mig:2g.10gb:1,mig:closed:23",
	} {
		if sameCounts(x, gres(t, other)) {
			t.Errorf("%s counts as the same", other)
		}
	}
}

// TestManyStrayComponents checks that a pass holds only some of many components of het jobs that cannot start, because
// no offers are published in the meantime.
func TestManyStrayComponents(t *testing.T) {
	fake := slurmtest.New(slurmtest.Node{
		Name: "n1", Partitions: []string{"gpu"}, Gres: gres(t, "gpu:a100:7,mig:7g.40gb:1"),
	})
	held := 0
	fake.After(func(c slurmtest.Call) {
		if c.Op == "Hold" {
			held++
		}
	})
	p := &Publisher{Options: Options{Slurmctld: fake, Log: quiet()}}
	var stray []slurm.Waiting
	for range MaxChanged + 4 {
		id, err := fake.Submit(slurm.Job{PerNode: gres(t, "gpu:1,mig:7g.40gb:1")})
		if err != nil {
			t.Fatal(err)
		}
		stray = append(stray, slurm.Waiting{Job: &slurm.Job{ID: id}})
	}
	if p.holdStray(t.Context(), stray); held != MaxChanged {
		t.Errorf("a pass held %d jobs, want %d", held, MaxChanged)
	}
}
