package preempt

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"caelum/internal/core/offer"
	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// drawMovable draws a node with two GPUs and random jobs on them, of which some permit moves. Job 99 waits. It returns
// the GPUs and the profiles of the jobs by id.
func drawMovable(t *rapid.T, s *state, empty place.GPU) ([]place.GPU, map[uint32]string) {
	gpus, profiles := []place.GPU{empty, empty}, map[uint32]string{}
	holders := map[offer.Spot]uint32{}
	used := slurm.GRESList{}
	for range rapid.IntRange(1, 10).Draw(t, "jobs") {
		k := rapid.IntRange(0, 1).Draw(t, "GPU")
		i := rapid.IntRange(0, len(empty.Model.Placements)-1).Draw(t, "placement")
		if !gpus[k].Offerable.Has(i) || gpus[k].Busy.Has(i) || !gpus[k].Model.Fits(gpus[k].Busy, i) {
			continue
		}
		id := uint32(len(profiles) + 1)
		ran := rapid.IntRange(0, 5000).Draw(t, "ran")
		left := rapid.IntRange(1, 5000).Draw(t, "left")
		gpus[k].Hold(i, float64(now.Unix()+int64(left)))
		profiles[id], holders[offer.Spot{GPU: k, Placement: i}] = gpus[k].Model.ProfileOf(i), id
		one := slurm.GRESList{{Name: "mig", Type: profiles[id], Count: 1}}
		used = append(used, one[0])
		j := slurm.Job{ID: id, UID: 1, State: "RUNNING", Partition: "low", Nodes: []string{"n1"}, NumNodes: 1, CPUs: 1,
			Batch: true, Requeue: true, Start: now.Add(-time.Duration(ran) * time.Second), PerNode: one,
			End: now.Add(time.Duration(left) * time.Second)}
		if rapid.Bool().Draw(t, "permits") {
			j.Comment = "caelum:movable"
		}
		s.snapshot.Queue.All = append(s.snapshot.Queue.All, j)
	}
	used = append(used, slurm.GRES{Name: "gpu", Type: "a100", Count: len(profiles)})
	extra := plan.WithState("", plan.Text(plan.State{GPUs: gpus}))
	s.snapshot.Nodes = []slurm.Node{{Name: "n1", States: []string{"MIXED"}, Partitions: []string{"low"}, CPUs: 32,
		CPUsFree: 20, Gres: append(slices.Clone(used), slurm.GRES{Name: "mig", Type: "closed", Count: 40}),
		GresUsed: used, Extra: plan.WithJobs(extra, gpus, holders)}}
	return gpus, profiles
}

// TestRandomMoves checks moves in random states: only jobs that permit it are moved, the wait is longer than their
// total lost run time, and the waiting job and the moved jobs fit beside the other running jobs.
func TestRandomMoves(t *testing.T) {
	empty := place.GPU{Model: fullModel(t)}
	for p := range empty.Model.Profiles {
		empty.Offerable |= empty.Model.OfProfile(p)
	}
	moved := 0
	for runs := 0; moved == 0 && runs < 20; runs++ { // with -short, a run has few cases
		rapid.Check(t, func(t *rapid.T) { moved += checkMoves(t, empty) })
	}
	if moved == 0 {
		t.Error("no state led to a move")
	}
}

// checkMoves checks the moves in a random state and returns their number.
func checkMoves(t *rapid.T, empty place.GPU) (moved int) {
	s := &state{settings: plan.Settings{Policy: place.Reach, Tightest: true}}
	s.begins = Settings{Moves: true, BeginMove: true}
	s.snapshot.At = now
	gpus, profiles := drawMovable(t, s, empty)
	needs := rapid.SampledFrom([]string{"2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}).Draw(t, "needs")
	s.wait(99, func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.Partition = needs, 1, "low" })
	v := s.view(nil)
	made := v.Plan()
	lost, stay, placed := 0.0, slices.Clone(gpus), []string{needs}
	for _, step := range Next(Rules{}, s.begins, s.snapshot, v, made) {
		if step.Job.ID == 99 {
			continue
		}
		moved++
		if step.Do != Tag || !step.Move || !tags.PermitsMove(step.Job) {
			t.Fatalf("%+v", step)
		}
		lost += now.Sub(step.Job.Start).Seconds()
		placed = append(placed, profiles[step.Job.ID])
		for at, id := range v.Holders() {
			if id == step.Job.ID {
				stay[at.GPU].Busy = stay[at.GPU].Busy.Without(at.Placement)
			}
		}
	}
	if len(placed) == 1 {
		return 0
	}
	if _, wait, ok := v.FirstWait(made); !ok || lost+121 > wait {
		t.Fatalf("%v s lost for a wait of %v s", lost, wait)
	}
	if _, fit := place.Pack(stay, placed); !fit {
		t.Fatalf("%v do not fit: %v", placed, fmt.Sprint(gpus[0].Busy, gpus[1].Busy))
	}
	return moved
}
