package preempt

import (
	"fmt"
	"testing"

	"caelum/internal/slurm"
)

// TestOnePreemption checks that no job is stopped for a user while slurmctld shows a job of this user for which jobs
// were stopped and which has not started.
func TestOnePreemption(t *testing.T) {
	began := now.Unix() - 60
	tag := func(tasks int) string { return fmt.Sprintf("caelum:preempts=0:%d:%d", began, tasks) }
	start := func(j *slurm.Job) {
		j.State, j.ArrayJob, j.ArrayTask, j.Nodes = "COMPLETED", 8, "1", []string{"n2"}
	}
	for what, c := range map[string]struct {
		change, task func(*slurm.Job)
		tasks        int
		allowed      bool
	}{
		"waits":        {change: func(*slurm.Job) {}},
		"held":         {change: func(j *slurm.Job) { j.Priority, j.Reason = 0, "JobHeldUser" }},
		"dependent":    {change: func(j *slurm.Job) { j.Reason, j.Dependency = "Dependency", "afterok:1" }},
		"cancelled":    {change: func(j *slurm.Job) { j.State = "CANCELLED" }},
		"deadline":     {change: func(j *slurm.Job) { j.State = "DEADLINE" }},
		"fewer tasks":  {change: func(j *slurm.Job) { j.ArrayJob, j.ArrayTask = 8, "2-5" }, tasks: 5},
		"a split task": {change: func(j *slurm.Job) { j.ArrayJob, j.ArrayTask = 6, "2" }, tasks: 5},
		"a task started": {
			change: func(j *slurm.Job) { j.ArrayJob, j.ArrayTask = 8, "2-5" }, task: start, tasks: 5, allowed: true,
		},
		"another array's": {change: func(j *slurm.Job) { j.ArrayJob, j.ArrayTask = 6, "2-5" }, task: start, tasks: 5},
		"started": {
			change: func(j *slurm.Job) { j.State, j.Nodes = "COMPLETED", []string{"n2"} }, allowed: true,
		},
		"ended":        {change: func(j *slurm.Job) { j.State = "COMPLETING" }, allowed: true},
		"another user": {change: func(j *slurm.Job) { j.UID = 3 }, allowed: true},
	} {
		s := newState(t).wait(9, nil).wait(8, func(j *slurm.Job) {
			j.PerNode, j.AdminComment = nil, tag(max(c.tasks, 1))
			c.change(j)
		})
		if c.task != nil {
			s.wait(70, func(j *slurm.Job) {
				j.AdminComment = tag(c.tasks)
				c.task(j)
			})
		}
		_, text := s.next(tierRules(t))
		if want := map[bool]string{true: "tag 1 2 3 4 5 6 7 9"}[c.allowed]; text != want {
			t.Errorf("%s: %q, want %q", what, text, want)
		}
	}
}

// TestLimits checks how many waiting jobs are looked at in a round: jobs that slurmctld preempts for itself count, and
// jobs that may not preempt any job do not.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		count  int
		change func(*slurm.Job)
		want   string
	}{
		{99, func(j *slurm.Job) { j.PerNode[0].Type = "1g.5gb" }, "tag 1 2 3 4 5 6 7 9"},
		{100, func(j *slurm.Job) { j.PerNode[0].Type = "1g.5gb" }, ""},
		{200, func(j *slurm.Job) { j.Partition = "same" }, "tag 1 2 3 4 5 6 7 9"},
	} {
		s := newState(t)
		for k := range c.count {
			s.wait(uint32(100+k), c.change)
		}
		if _, text := s.wait(9, nil).next(tierRules(t)); text != c.want {
			t.Errorf("%d jobs: %q, want %q", c.count, text, c.want)
		}
	}
}

// TestEarlierRun checks that a slice of a job that now runs on another node counts as free.
func TestEarlierRun(t *testing.T) {
	s := newState(t).wait(9, nil)
	s.job(1).Nodes, s.job(1).Partition, s.snapshot.Nodes[0].CPUsFree = []string{"n2"}, "high", 2
	if _, text := s.next(tierRules(t)); text != "tag 2 3 4 5 6 7 9" {
		t.Error(text)
	}
}

// TestCompleting checks that the CPU of a completing job, which the node's free CPUs contain, is not counted twice.
func TestCompleting(t *testing.T) {
	s := newState(t).wait(9, nil)
	s.job(1).State = "COMPLETING"
	if _, text := s.next(tierRules(t)); text != "" {
		t.Errorf("7 of 8 CPUs: %q", text)
	}
	s.snapshot.Nodes[0].CPUsFree++
	if _, text := s.next(tierRules(t)); text != "tag 2 3 4 5 6 7 9" {
		t.Errorf("8 of 8 CPUs: %q", text)
	}
}

// TestEarlierJob checks that no job is stopped if the room would contain the spot of an earlier waiting job.
func TestEarlierJob(t *testing.T) {
	half := func(j *slurm.Job) { j.PerNode[0].Type, j.CPUs, j.UID = "3g.20gb", 1, 3 }
	small := func(j *slurm.Job) { j.CPUs = 5 }
	if _, text := newStateOf(t, 4).wait(8, half).wait(9, small).next(tierRules(t)); text != "" {
		t.Error(text)
	}
	if _, text := newStateOf(t, 4).wait(9, small).wait(8, half).next(tierRules(t)); text != "tag 1 2 3 4 9" {
		t.Errorf("the other job is later: %q", text)
	}
}

// TestLostRoom checks that a preemptor whose room is lost gives up its place, unless a job was stopped for it.
func TestLostRoom(t *testing.T) {
	for state, want := range map[string]string{
		"RUNNING": "tag 9 1 2 3 4 5 6 7", "COMPLETING": "tag 2 3 4 5 6 7", "PENDING": "tag 2 3 4 5 6 7",
	} {
		s := newState(t).wait(9, nil)
		steps, _ := s.next(tierRules(t))
		s.carryOut(steps, 100)
		s.job(2).Partition = "high"
		if s.job(1).State = state; state == "PENDING" {
			s.job(1).Restarts, s.job(1).Reason = 1, "BeginTime"
		}
		steps, text := s.next(tierRules(t))
		if text != want {
			t.Errorf("%s: %q, want %q", state, text, want)
		}
		s.carryOut(steps, 100)
		s.job(2).Partition = "cancel"
		if _, text := s.next(tierRules(t)); text != "" {
			t.Errorf("%s: the job preempts again: %q", state, text)
		}
		if state == "RUNNING" && s.snapshot.Preempts(*s.job(9)) {
			t.Error("the job keeps the first place")
		}
	}
}
