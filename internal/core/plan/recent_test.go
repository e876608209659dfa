package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/slurm"
)

// TestLastSubmitted compares the jobs submitted last with the end of the sorted list of all jobs.
func TestLastSubmitted(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		all := make([]slurm.Job, rng.IntN(2000))
		for k := range all {
			all[k] = slurm.Job{ID: uint32(rng.IntN(1000)), Submit: time.Unix(int64(rng.IntN(200)), 0)}
			if profile := rng.IntN(5); profile > 0 {
				all[k].PerNode = slurm.GRESList{{Name: "mig", Type: string(rune('a' + profile)), Count: 1}}
			}
		}
		var sorted []*slurm.Job
		for k := range all {
			if all[k].PerNode != nil {
				sorted = append(sorted, &all[k])
			}
		}
		slices.SortStableFunc(sorted, func(a, b *slurm.Job) int {
			return cmp.Or(a.Submit.Compare(b.Submit), cmp.Compare(a.ID, b.ID))
		})
		byProfile := map[string]*slurm.Job{}
		for _, j := range sorted {
			byProfile[j.PerNode[0].Type] = j
		}
		last, of := new(Planner).lastSubmitted(all)
		if want := sorted[max(0, len(sorted)-place.RecentKept):]; !slices.Equal(last, want) {
			t.Fatalf("%d jobs: not the last %d", len(all), len(want))
		}
		for profile, j := range byProfile {
			if of[profile] != j {
				t.Fatalf("%s: job %d, want job %d", profile, of[profile].ID, j.ID)
			}
		}
	}
}
