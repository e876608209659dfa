package plan

import (
	"testing"
	"time"

	"caelum/internal/slurm"
)

// TestUnstarted checks a job that slurmctld does not start although its slices have been offered for minutes. For a
// limited time, the plan must place the job after all other jobs.
func TestUnstarted(t *testing.T) {
	shows := offering(node(t, "n1", a100(t)), "mig:7g.40gb:1")
	stuck, other := waits(1, "7g.40gb", 1, 1), waits(2, "3g.20gb", 1, 1)
	stuck.Reason = "Priority"
	task := stuck.Clone()
	task.ArrayTask = "3-5"
	var u Unstarted
	due := false // whether the job has a deadline and is urgent
	served := func(after time.Duration, first slurm.Waiting, evaluated time.Duration) uint32 {
		first = first.Clone()
		first.LastSchedEval = time.Unix(1e9, 0).Add(evaluated)
		snapshot := snapshotOf([]slurm.Node{shows}, first, other)
		snapshot.At = time.Unix(1e9, 0).Add(after)
		if due {
			w := &snapshot.Queue.Waiting[0]
			w.TimeLimit, w.Deadline = time.Hour, snapshot.At.Add(time.Hour+time.Minute)
			snapshot.Queue.Waiting[1].Submit, snapshot.Queue.Waiting[1].Eligible = snapshot.At, snapshot.At
		}
		v := New(u.Reorder(snapshot), withLifetime, nil)
		p := v.Plan()
		u.Record(v, p, snapshot.At)
		for k, spots := range p.Spots {
			if spots != nil && v.Jobs[k].Wants[0].Profile == "7g.40gb" {
				return 1
			}
		}
		return 2
	}
	cases := []struct {
		what             string
		after, evaluated time.Duration
		job              slurm.Waiting
		want             uint32
	}{
		{"at first", 0, 0, stuck, 1},
		{"before its time", patience, patience, stuck, 1},
		{"slurmctld has not considered it", 2 * patience, 0, stuck, 1},
		{"slurmctld has considered it", 2*patience + time.Second, patience, stuck, 1},
		{"it comes last", 2*patience + 2*time.Second, patience, stuck, 2},
		{"another task of the array", 2*patience + 3*time.Second, patience, task, 1},
		{"it still comes last", 2*patience + backTime, patience, stuck, 2},
		{"the time is over", 2*patience + backTime + 2*time.Second, patience, stuck, 1},
	}
	for _, due = range []bool{false, true} {
		u = Unstarted{}
		for _, c := range cases {
			if got := served(c.after, c.job, c.evaluated); got != c.want {
				t.Errorf("%s, deadline %v: job %d is served", c.what, due, got)
			}
		}
	}
}
