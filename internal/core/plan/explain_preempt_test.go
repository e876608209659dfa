package plan

import (
	"fmt"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// TestExplainStopped checks the explanations of jobs that the watcher preempts or moves, before and after the end of
// their runs.
func TestExplainStopped(t *testing.T) {
	for _, c := range []struct {
		what, state, comment string
		restarts             int
		want                 string // a part of the text, or empty if the text mentions neither a preemption nor a move
		preempted, moved     uint32
	}{
		{"neither", "RUNNING", "", 0, "", 0, 0},
		{"preempted", "RUNNING", "caelum:preempted=9:0:0", 0, "Job 9 preempts the job", 9, 0},
		{"in its grace time", "RUNNING", "caelum:preempted=9:0:1000000100", 0, "has received SIGTERM", 9, 0},
		{"cancelled", "CANCELLED", "caelum:preempted=9:0:0", 0, "Job 9 preempted the job", 9, 0},
		{"requeued", "PENDING", "caelum:preempted=9:0:0", 1, "Job 9 preempted the job's last run", 9, 0},
		{"to be moved", "RUNNING", "caelum:moved=9:0", 0, "is being moved: it will be requeued, because job 9", 0, 9},
		{"moved", "PENDING", "caelum:moved=9:0", 1, "was moved: its last run was requeued, because job 9", 0, 9},
		{"restarted", "RUNNING", "caelum:moved=9:0", 1, "was moved: its last run was requeued, because job 9", 0, 9},
		{"ended", "COMPLETED", "caelum:moved=9:0", 0, "was being moved for job 9 when its run ended", 0, 9},
		{"two runs later", "RUNNING", "caelum:moved=9:0", 2, "", 0, 0},
		{"a refused move", "RUNNING", "caelum:moved=0:0", 0, "", 0, 0},
		{"both", "RUNNING", "caelum:moved=8:0 caelum:preempted=9:1:0", 1, "Job 9 preempts the job", 9, 0},
	} {
		w := waits(1, "7g.40gb", 1, 1)
		w.State, w.AdminComment, w.Restarts, w.Nodes = c.state, c.comment, c.restarts, []string{"n1"}
		s := snapshotOf([]slurm.Node{node(t, "n1", a100(t))})
		s.Queue.All = []slurm.Job{*w.Job}
		if c.state == "PENDING" {
			s.Queue.Waiting = []slurm.Waiting{w}
		}
		e, err := Explain(s, withReach, 1)
		mentioned := strings.Contains(e.Text, "preempt") || strings.Contains(e.Text, "moved")
		if err != nil || !strings.Contains(e.Text, c.want) || mentioned != (c.want != "") ||
			e.PreemptedBy != c.preempted || e.MovedFor != c.moved {
			t.Errorf("%s: %+v, %v", c.what, e, err)
		}
	}
}

// TestExplainRoomMade checks the explanation of a job for which the watcher preempts or moves other jobs.
func TestExplainRoomMade(t *testing.T) {
	for tag, want := range map[string]string{
		"caelum:moved=1:0":       "Jobs that fit elsewhere are requeued to make room for the job: 7, 8; [] [7 8]",
		"caelum:preempted=1:0:0": "Jobs are stopped to make room for the job: 7, 8; [7 8] []",
	} {
		w := waits(1, "7g.40gb", 1, 1)
		w.AdminComment = "caelum:preempts=0:1000000000:1"
		s := snapshotOf([]slurm.Node{node(t, "n1", a100(t, "1g.5gb@0"))}, w)
		s.Queue.All = []slurm.Job{*w.Job}
		for _, id := range []uint32{8, 7} {
			s.Queue.All = append(s.Queue.All,
				slurm.Job{ID: id, State: "RUNNING", Nodes: []string{"n1"}, AdminComment: tag})
		}
		e, err := Explain(s, withReach, 1)
		_, text, _ := strings.Cut(e.Text, ". Jobs")
		if got := fmt.Sprint("Jobs", text, "; ", e.Preempts, " ", e.Moves); err != nil || got != want {
			t.Errorf("%s: %q, want %q", tag, got, want)
		}
	}
}
