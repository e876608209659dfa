package sim

import (
	"slices"
	"testing"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/trace"
)

// TestLossNeverHolds checks that, without a queue, no policy rejects a job that fits. The last job is long, so qla
// would hold it until the jobs around the free slot have ended.
func TestLossNeverHolds(t *testing.T) {
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []trace.Job
	for range 6 {
		jobs = append(jobs, trace.Job{ID: "short", Profile: "1g.5gb", Duration: 100})
	}
	jobs = append(jobs, trace.Job{ID: "long", Profile: "1g.5gb", Submit: 50, Duration: 1e6})
	for _, name := range place.Names() {
		policy, err := place.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(
			Config{GPUs: []*mig.Model{b.Select(mig.Plain)}, Policy: policy, Discipline: Loss},
			slices.Values(jobs),
		)
		if err != nil || r.Refused != 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
