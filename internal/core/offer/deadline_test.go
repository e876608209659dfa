package offer

import (
	"math"
	"slices"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
)

// TestDeadlineOrder checks which jobs an urgent job passes. slurmctld decides the order of jobs with different
// priorities and of jobs that request the same profile, so that the plan must not change the order of these jobs.
func TestDeadlineOrder(t *testing.T) {
	job := func(profile string, priority uint64) *Job {
		return &Job{Wants: []Want{{Profile: profile, Count: 1}}, Priority: priority, RunTime: 60, TimeLimit: 60}
	}
	due := func(j *Job, latest float64) *Job {
		j.LatestStart, j.Deadline = latest, latest+60
		return j
	}
	old := job("1g.5gb", 5)
	old.Waited = maxPassing
	het := job("1g.5gb", 5)
	het.Het = 7
	for _, c := range []struct {
		what   string
		jobs   []*Job
		strict bool
		want   []int
	}{
		{"no deadlines", []*Job{job("1g.5gb", 5), job("2g.10gb", 5)}, false, nil},
		{"equal priorities", []*Job{job("1g.5gb", 5), due(job("2g.10gb", 5), 500)}, false, []int{1, 0}},
		{"a strict queue", []*Job{job("1g.5gb", 5), due(job("2g.10gb", 5), 500)}, true, nil},
		{"a higher priority", []*Job{job("1g.5gb", 6), job("1g.5gb", 5), due(job("2g.10gb", 5), 500)}, false,
			[]int{0, 2, 1}},
		{"the same profile", []*Job{job("1g.5gb", 5), job("2g.10gb", 5), due(job("2g.10gb", 5), 500)}, false,
			[]int{1, 2, 0}},
		{"the earlier deadline precedes", []*Job{job("1g.5gb", 5), due(job("2g.10gb", 5), 500),
			due(job("3g.20gb", 5), 400)}, false, []int{2, 1, 0}},
		{"not urgent", []*Job{job("1g.5gb", 5), due(job("2g.10gb", 5), urgency+1)}, false, nil},
		{"too late", []*Job{job("1g.5gb", 5), due(job("2g.10gb", 5), -1)}, false, nil},
		{"held jobs", []*Job{job("1g.5gb", 0), due(job("2g.10gb", 0), 500)}, false, nil},
		{"a long wait", []*Job{old, job("1g.5gb", 5), due(job("2g.10gb", 5), 500)}, false, []int{0, 2, 1}},
		{"a het job", []*Job{het, due(job("2g.10gb", 5), 500)}, false, []int{0, 1}},
	} {
		if got := deadlineOrder(c.jobs, 0, c.strict); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestUrgentUsers checks that one user's urgent jobs do not exclude those of another user, and that a user without
// competition gets all places.
func TestUrgentUsers(t *testing.T) {
	var jobs []*Job
	for k := range maxUrgent + 2 {
		latest := float64(100 + k)
		jobs = append(jobs, &Job{User: 1, Priority: 5, RunTime: 60, LatestStart: latest, Deadline: latest + 60})
	}
	if got := urgent(jobs, 0); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("one user: %v", got)
	}
	for _, k := range []int{maxUrgent, maxUrgent + 1} {
		jobs[k].User = 2
	}
	if got := urgent(jobs, 0); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 8, 9}) {
		t.Errorf("two users: %v", got)
	}
}

// TestDeadlinePlan plans, on one empty GPU, a job with 3g.20gb that precedes an urgent job with 7g.40gb in the queue.
// The plan's jobs are in the order of the queue.
func TestDeadlinePlan(t *testing.T) {
	small := &Job{ID: 1, Wants: []Want{{Profile: "3g.20gb", Count: 1}}, RunTime: 6000, TimeLimit: 6000, Priority: 1}
	whole := &Job{ID: 2, Wants: []Want{{Profile: "7g.40gb", Count: 1}}, RunTime: 60, TimeLimit: 60, Priority: 1}
	for _, c := range []struct {
		what     string
		deadline float64
		first    *Job
	}{{"no deadline", 0, small}, {"a deadline", 200, whole}} {
		whole.Deadline, whole.LatestStart = c.deadline, max(0, c.deadline-60)
		p := Make(deadlineCluster(t), []*Job{small, whole}, false)
		for k, j := range []*Job{small, whole} {
			if (p.Spots[k] != nil) != (j == c.first) {
				t.Errorf("%s: job %d has the spots %v", c.what, j.ID, p.Spots[k])
			}
		}
		if p.Reserved == nil || p.Reserved.Job != 1-slices.Index([]*Job{small, whole}, c.first) {
			t.Errorf("%s: reservation %+v", c.what, p.Reserved)
		}
	}
}

// TestDeadlineSize plans a job that meets its deadline only on a larger slice.
func TestDeadlineSize(t *testing.T) {
	for deadline, want := range map[float64]string{0: "1g.5gb", 1000: "1g.5gb", 600: "3g.20gb", 10: "1g.5gb"} {
		j := &Job{ID: 1, RunTime: 900, TimeLimit: 3600, Learned: true, Deadline: deadline, LatestStart: deadline,
			Wants: []Want{{Profile: "1g.5gb", Count: 1, Sizes: []Size{{"3g.20gb", 0.6}}}}}
		// With this price, the larger slice is not worth its cost.
		c := deadlineCluster(t)
		c.price = 100
		choice := c.choose(&c.Situation, j.Wants[0], j)
		if got := c.Pool.GPU(choice.GPU).Model.ProfileOf(choice.Placement); got != want {
			t.Errorf("deadline in %v s: %s, want %s", deadline, got, want)
		}
	}
}

// deadlineCluster returns one empty A100 at the time 0.
func deadlineCluster(t *testing.T) *Cluster {
	t.Helper()
	b, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(place.Lifetime{}, []place.GPU{{Model: b, Offerable: b.Open(0, 0)}})
	c.MeanDuration = math.Inf(1)
	return c
}
