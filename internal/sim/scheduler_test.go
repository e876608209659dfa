package sim

import (
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim/trace"
)

// lastFirst is a Scheduler that tries only the job that was submitted last.
type lastFirst struct {
	*Control
	left *[]string
}

func (l lastFirst) Turn() bool  { return l.Try(l.Waiting() - 1) }
func (l lastFirst) Left(j *Job) { *l.left = append(*l.left, j.ID) }

// TestScheduler checks that a Scheduler determines the order of the starts, with a policy and with fixed layouts, and
// learns of each job that has ended.
func TestScheduler(t *testing.T) {
	models := gpus(t, "A100-40GB", 1)
	whole, _ := OneInstance(models[0])
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, Profile: "7g.40gb"},
		{ID: "b", Submit: 1, Duration: 10, Profile: "7g.40gb"},
		{ID: "c", Submit: 2, Duration: 10, Profile: "7g.40gb"},
	}
	for _, c := range []Config{{Policy: place.Reach}, {Static: []mig.Layout{whole}}} {
		var left []string
		c.GPUs, c.Scheduler = models, func(control *Control) Scheduler { return lastFirst{control, &left} }
		got, err := waits(c, slices.Values(jobs))
		if err != nil || !slices.Equal(got, []float64{0, 98, 109}) || !slices.Equal(left, []string{"a", "c", "b"}) {
			t.Errorf("waits %v (%v), ended %v", got, err, left)
		}
	}
}

// TestSchedulerPlacesDirectly checks the configurations that a Scheduler does not support, and that GPUs without a
// policy and fixed layouts require one.
func TestSchedulerPlacesDirectly(t *testing.T) {
	scheduler := func(c *Control) Scheduler { return lastFirst{c, new([]string)} }
	for name, c := range map[string]Config{
		"no scheduler":  {},
		"two models":    {Scheduler: scheduler, GPUs: append(gpus(t, "A30-24GB", 1), gpus(t, "A100-40GB", 1)...)},
		"offers":        {Scheduler: scheduler, Policy: place.Reach, Offers: true},
		"sizes":         {Scheduler: scheduler, Policy: place.Reach, Sizing: Adaptive},
		"deadlines":     {Scheduler: scheduler, Policy: place.Reach, Deadlines: &Deadlines{}},
		"static moves":  {Scheduler: scheduler, Static: []mig.Layout{0}, Moves: true},
		"only moves":    {Policy: place.Reach, Moves: true},
		"memory":        {Scheduler: scheduler, Policy: place.Reach, Moves: true, Memory: exact{}},
		"limit on full": {Scheduler: scheduler, Policy: place.Reach, WholeShare: 0.5, GPUs: fullGPUs(t, 1)},
	} {
		if c.GPUs == nil {
			c.GPUs = gpus(t, "A100-40GB", 1)
		}
		if _, err := Run(c, slices.Values([]trace.Job(nil))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
