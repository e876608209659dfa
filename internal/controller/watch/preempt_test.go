package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/preempt"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// fakeSlurm implements Preemptor with one running job, and records the calls.
type fakeSlurm struct {
	job    slurm.Job
	config map[string]string
	qos    error
	writes error // the result of SetAdminComment
	calls  []string
}

func (f *fakeSlurm) Config(context.Context) (slurm.Config, error) {
	return slurm.Config{Values: f.config}, nil
}
func (f *fakeSlurm) Partitions(context.Context) ([]slurm.Partition, error) {
	return []slurm.Partition{{Name: "low", Tier: 1, PreemptMode: "REQUEUE"}, {Name: "high", Tier: 2}}, nil
}
func (f *fakeSlurm) Job(context.Context, uint32) (slurm.Job, error) { return f.job, nil }
func (f *fakeSlurm) ExcludedNodes(context.Context, uint32) ([]string, error) {
	return nil, nil
}
func (f *fakeSlurm) QOS(context.Context) ([]slurm.QOS, error) { return nil, f.qos }

func (f *fakeSlurm) SetAdminComment(_ context.Context, id uint32, text string) error {
	f.calls = append(f.calls, fmt.Sprint("comment ", id, " ", text))
	return f.writes
}

func (f *fakeSlurm) on(what string, still func(slurm.Job) bool) error {
	if !still(f.job) {
		return slurm.ErrJobState
	}
	f.calls = append(f.calls, what)
	return nil
}

func (f *fakeSlurm) Requeue(_ context.Context, _ uint32, still func(slurm.Job) bool) error {
	return f.on("requeue", still)
}
func (f *fakeSlurm) Cancel(_ context.Context, _ uint32, still func(slurm.Job) bool) error {
	return f.on("cancel", still)
}
func (f *fakeSlurm) Warn(_ context.Context, _ uint32, still func(slurm.Job) bool) error {
	return f.on("warn", still)
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// newPreemption returns the state of a watcher that preempts jobs and moves none.
func newPreemption(ctl Preemptor) *preemption {
	return &preemption{ctl: ctl, log: quiet(), preempts: true, moves: newMoves(Moves{}, quiet())}
}

// TestStopsOnlyTheMarkedRun checks that a step ends a run only while the run has its mark, and that a job which must
// not be requeued is cancelled.
func TestStopsOnlyTheMarkedRun(t *testing.T) {
	j := slurm.Job{ID: 1, Batch: true, Requeue: true, Restarts: 2}
	j.AdminComment = tags.WithPreemption(j, tags.Preemption{Job: 9})
	for _, c := range []struct {
		what   string
		change func(*slurm.Job)
		mode   preempt.Mode
		call   string
	}{
		{"requeue", func(*slurm.Job) {}, preempt.Requeue, "requeue"},
		{"cancel", func(*slurm.Job) {}, preempt.Cancel, "cancel"},
		{"another run", func(j *slurm.Job) { j.Restarts = 3 }, preempt.Cancel, ""},
		{"the mark was removed", func(j *slurm.Job) { j.AdminComment = "" }, preempt.Requeue, ""},
		{"another preemptor", func(j *slurm.Job) { j.AdminComment = "caelum:preempted=8:2:0" }, preempt.Requeue, ""},
	} {
		f := &fakeSlurm{job: j}
		c.change(&f.job)
		p := newPreemption(f)
		err := p.do(t.Context(), preempt.Step{Do: preempt.Stop, Job: j, Mode: c.mode, For: 9})
		got := strings.Join(f.calls, " ")
		if got != c.call || (err == nil) != (c.call != "") {
			t.Errorf("%s: %v %v", c.what, f.calls, err)
		}
	}
	j.Requeue = false
	f := &fakeSlurm{job: j}
	p := newPreemption(f)
	if err := p.do(t.Context(), preempt.Step{Do: preempt.Stop, Job: j, Mode: preempt.Requeue, For: 9}); err != nil ||
		!slices.Equal(f.calls, []string{"cancel"}) {
		t.Errorf("a job that must not be requeued: %v %v", f.calls, err)
	}
}

// TestTagsOnlyAnUnchangedRun checks that a step leaves a job's admin_comment alone if an agent has changed it, or if
// the run has ended.
func TestTagsOnlyAnUnchangedRun(t *testing.T) {
	j := slurm.Job{ID: 1, State: "RUNNING", Restarts: 2, AdminComment: "caelum:key=1"}
	for _, do := range []preempt.Action{preempt.Tag, preempt.Warn} {
		for what, change := range map[string]func(*slurm.Job){
			"":                    func(*slurm.Job) {},
			"an agent holds it":   func(j *slurm.Job) { j.AdminComment += " caelum:held" },
			"it was requeued":     func(j *slurm.Job) { j.Restarts++ },
			"it is pending again": func(j *slurm.Job) { j.State = "PENDING" },
		} {
			f := &fakeSlurm{job: j}
			f.job.AdminComment = tags.WithPreemption(j, tags.Preemption{Job: 9})
			s := preempt.Step{Do: do, Job: f.job, Comment: "new", For: 9}
			change(&f.job)
			err := newPreemption(f).do(t.Context(), s)
			wrote := slices.Contains(f.calls, "comment 1 new")
			if wrote != (what == "") || (err == nil) != wrote {
				t.Errorf("%s %q: %v %v", do, what, f.calls, err)
			}
		}
	}
}

// TestUnknownRules checks that no job is stopped if the QOS cannot be read, and that the marks are then removed.
func TestUnknownRules(t *testing.T) {
	n := node(t, "n1", "1g.5gb@0", "mig:1g.5gb:1,mig:closed:27", "gpu:a100:1,mig:1g.5gb:1")
	j := slurm.Job{ID: 1, State: "RUNNING", Partition: "low", Nodes: []string{"n1"}, Start: time.Unix(1, 0)}
	j.AdminComment = tags.WithPreemption(j, tags.Preemption{Job: 9})
	s := snapshotOf([]slurm.Node{n})
	s.Queue.All = []slurm.Job{j}
	f := &fakeSlurm{job: j, qos: errors.New("no slurmdbd"), config: map[string]string{
		"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE",
		"AccountingStorageType": "accounting_storage/slurmdbd",
	}}
	p := newPreemption(f)
	v := plan.New(s, plan.Settings{Policy: place.Reach, Tightest: true}, nil)
	again := p.round(t.Context(), s, v, v.Plan())
	if !again || p.rules.Enabled() || !slices.Equal(f.calls, []string{"comment 1 "}) {
		t.Errorf("%v %v, rules %+v", again, f.calls, p.rules)
	}
}

// TestFailedStep checks that the log names the step, the job and the preemptor of a failed step, and that the next
// round does not wait for the poll interval.
func TestFailedStep(t *testing.T) {
	j := slurm.Job{ID: 1, State: "RUNNING", Nodes: []string{"n1"}}
	j.AdminComment = tags.WithPreemption(j, tags.Preemption{Job: 9})
	s := snapshotOf(nil)
	s.Queue.All = []slurm.Job{j}
	log, hook := test.NewNullLogger()
	p := newPreemption(&fakeSlurm{job: j, writes: errors.New("denied")})
	p.log, p.read = logrus.NewEntry(log), s.At
	v := plan.New(s, plan.Settings{Policy: place.Reach, Tightest: true}, nil)
	again := p.round(t.Context(), s, v, v.Plan())
	e := hook.LastEntry()
	if !again || e == nil || e.Level != logrus.WarnLevel || !strings.Contains(e.Message, "a step of a preemption") ||
		fmt.Sprintln(e.Data["step"], e.Data["job"], e.Data["preemptor"], e.Data["error"]) != "tag 1 9 denied\n" {
		t.Errorf("%v %+v", again, e)
	}
}
