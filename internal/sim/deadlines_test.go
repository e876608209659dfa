package sim

import (
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// TestDeadlines compares simulations in which different programs know the deadlines. Each job is counted once. With
// equal priorities, more jobs meet their deadlines if the plan knows the deadlines.
func TestDeadlines(t *testing.T) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	jobs := trace.Churn{Mix: trace.Mixes[0].Mix, Jobs: 600, GPUs: 4, Load: 0.95, Seed: 3}
	results := map[DeadlineUse]*Result{}
	for _, use := range []DeadlineUse{DeadlinesCounted, DeadlinesInSlurm, DeadlinesInPlan} {
		c := Config{
			GPUs: []*mig.Model{b, b, b, b}, Policy: place.Lifetime{}, Discipline: EASY, Offers: true,
			Deadlines: &Deadlines{Share: 0.2, To: 2, Seed: 1, Use: use, Equal: true},
		}
		r, err := Run(c, jobs.All())
		if err != nil {
			t.Fatal(err)
		}
		if r.Started+r.Removed != jobs.Jobs || r.Met+r.Missed+r.Others.Count != jobs.Jobs || r.Met == 0 {
			t.Errorf("use %d: %d started, %d removed, %d met, %d missed, %d others",
				use, r.Started, r.Removed, r.Met, r.Missed, r.Others.Count)
		}
		if use == DeadlinesCounted && r.Removed > 0 || use != DeadlinesCounted && r.Removed != r.Missed {
			t.Errorf("use %d: %d removed of %d missed", use, r.Removed, r.Missed)
		}
		results[use] = r
	}
	if a, b := results[DeadlinesInPlan].Met, results[DeadlinesInSlurm].Met; a <= b {
		t.Errorf("the plan with deadlines meets %d deadlines, the plan without %d", a, b)
	}
}
