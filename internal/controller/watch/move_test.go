package watch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/core/preempt"
	"caelum/internal/slurm"
)

// movingSlurm implements Preemptor for a node with one GPU. Job 1 holds the first unit and permits moves, and job 9
// waits for a 4g.20gb slice, whose only placement contains that unit. calls records the changes.
type movingSlurm struct {
	t     *testing.T
	now   time.Time
	jobs  map[uint32]*slurm.Job
	calls []string
}

func newMovingSlurm(t *testing.T) *movingSlurm {
	m := &movingSlurm{t: t, now: time.Unix(1e9, 0)}
	m.reset()
	return m
}

// reset restores the jobs and forgets the calls.
func (m *movingSlurm) reset() {
	slice := func(profile string) slurm.GRESList { return slurm.GRESList{{Name: "mig", Type: profile, Count: 1}} }
	m.calls = nil
	m.jobs = map[uint32]*slurm.Job{
		1: {ID: 1, State: "RUNNING", Partition: "gpu", Nodes: []string{"n1"}, NumNodes: 1, Batch: true, Requeue: true,
			Comment: "caelum:movable", Start: m.now.Add(-time.Minute), End: m.now.Add(time.Hour),
			PerNode: slice("1g.5gb")},
		9: {ID: 9, State: "PENDING", Reason: "Resources", Priority: 1, Partition: "gpu", NumNodes: 1,
			PerNode: slice("4g.20gb")},
	}
}

func (m *movingSlurm) snapshot() plan.Snapshot {
	n := node(m.t, "n1", "", "mig:closed:28", "")
	if m.jobs[1].Holds() {
		n = node(m.t, "n1", "1g.5gb@0", "mig:1g.5gb:1,mig:closed:27", "gpu:a100:1,mig:1g.5gb:1")
		n.Extra += " caelum-jobs=0:1g.5gb@0/1"
	}
	s := snapshotOf([]slurm.Node{n})
	s.At = m.now
	for _, id := range []uint32{1, 9} {
		j, _ := m.Job(m.t.Context(), id)
		s.Queue.All = append(s.Queue.All, j)
		if m.jobs[id].State == "PENDING" {
			s.Queue.Waiting = append(s.Queue.Waiting, slurm.Waiting{Job: m.jobs[id], Elements: 1})
		}
	}
	used := n.GresUsed.Named("mig")
	n = follow(s, "n1")
	for _, g := range used {
		k := slices.IndexFunc(n.Gres, func(h slurm.GRES) bool { return h.Name == "mig" && h.Type == g.Type })
		if k < 0 {
			n.Gres = append(n.Gres, g)
		} else {
			n.Gres[k].Count += g.Count
		}
	}
	s.Nodes = []slurm.Node{n}
	return s
}

func (m *movingSlurm) Config(context.Context) (slurm.Config, error)          { return slurm.Config{}, nil }
func (m *movingSlurm) Partitions(context.Context) ([]slurm.Partition, error) { return nil, nil }
func (m *movingSlurm) QOS(context.Context) ([]slurm.QOS, error)              { return nil, nil }

// Job is like slurm.Client.Job, which does not read the nodes that a job with nodes excludes.
func (m *movingSlurm) Job(_ context.Context, id uint32) (slurm.Job, error) {
	j := *m.jobs[id]
	if j.Holds() {
		j.ExcNodes = nil
	}
	return j, nil
}

func (m *movingSlurm) ExcludedNodes(_ context.Context, id uint32) ([]string, error) {
	return m.jobs[id].ExcNodes, nil
}

func (m *movingSlurm) SetAdminComment(_ context.Context, id uint32, text string) error {
	m.calls = append(m.calls, strings.TrimSpace(fmt.Sprintf("%d %s", id, text)))
	m.jobs[id].AdminComment = text
	return nil
}

func (m *movingSlurm) Requeue(_ context.Context, id uint32, still func(slurm.Job) bool) error {
	j := m.jobs[id]
	if !still(*j) {
		return slurm.ErrJobState
	}
	m.calls = append(m.calls, fmt.Sprint("requeue ", id))
	j.State, j.Reason, j.Nodes = "PENDING", "BeginTime", nil
	j.Restarts++
	return nil
}

func (m *movingSlurm) Cancel(context.Context, uint32, func(slurm.Job) bool) error {
	m.calls = append(m.calls, "cancel")
	return nil
}

func (m *movingSlurm) Warn(context.Context, uint32, func(slurm.Job) bool) error {
	m.calls = append(m.calls, "warn")
	return nil
}

// watcher returns a new watcher's state that may begin a move now.
func (m *movingSlurm) watcher(perDay int, command string) *preemption {
	p := &preemption{ctl: m, log: quiet(), moves: newMoves(Moves{PerDay: perDay, Command: command}, quiet())}
	p.moves.next = m.now
	return p
}

// round makes a round and returns the changes.
func (m *movingSlurm) round(p *preemption) string {
	m.calls = nil
	s := m.snapshot()
	v := plan.New(s, plan.Settings{Policy: place.Reach, Tightest: true}, nil)
	p.round(m.t.Context(), s, v, v.Plan())
	return strings.Join(m.calls, ", ")
}

// began returns the changes that begin a move at the given time.
func (m *movingSlurm) began() string {
	return fmt.Sprintf("1 caelum:moved=9:0, 9 caelum:preempts=0:%d:1", m.now.Unix())
}

// TestMovesPerDay makes a round every half hour for 30 hours and checks when moves begin: at most once in 24 hours
// divided by moves_per_day, and not earlier after the watcher's start or after it has not been the active planner. With
// moves_per_day: 0, no move begins.
func TestMovesPerDay(t *testing.T) {
	for perDay, want := range map[int]string{
		0: "", 4: "6 12 18 30", 3: "8 16", 8: "3 6 9 12 15 18 21 27 30", 1440: "0.5 1 1.5 2 2.5 3",
	} {
		m := newMovingSlurm(t)
		p := m.watcher(perDay, "")
		p.moves.next = time.Time{}
		if text := m.round(p); text != "" {
			t.Errorf("%d a day: %q before the planner has been inactive", perDay, text)
		}
		start, began := m.now, []string{}
		if p.moves.delay(start); perDay > 0 && p.moves.next.Sub(start)*time.Duration(perDay) != 24*time.Hour {
			t.Errorf("%d a day: the next move may begin at %v", perDay, p.moves.next)
		}
		for half := range 61 {
			m.now = start.Add(time.Duration(half) * 30 * time.Minute)
			m.reset()
			if half == 0 || half == 48 { // another planner is active
				p.moves.delay(m.now)
				continue
			}
			if text := m.round(p); text == m.began() {
				began = append(began, fmt.Sprint(float64(half)/2))
			} else if text != "" {
				t.Fatalf("%d a day, after %d half hours: %q", perDay, half, text)
			}
			if perDay == 1440 && half == 6 {
				break
			}
		}
		if text := strings.Join(began, " "); text != want {
			t.Errorf("%d a day: moves began after %s hours, want %s", perDay, text, want)
		}
	}
}

// TestMove checks the changes of a move if a new watcher, which may not begin a move, replaces the first one after each
// round or after a single step.
func TestMove(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		m := newMovingSlurm(t)
		p := m.watcher(4, "")
		for _, want := range []string{m.began(), "requeue 1", "", ""} {
			if text := m.round(p); text != want {
				t.Errorf("replaced %v: %q, want %q", replaced, text, want)
			}
			if replaced {
				p = m.watcher(4, "")
				p.moves.next = time.Time{}
			}
		}
	}
	m := newMovingSlurm(t)
	m.jobs[1].AdminComment = "caelum:moved=9:0" // the first watcher was killed before it had tagged job 9
	if text := m.round(m.watcher(4, "")); text != "1" {
		t.Errorf("a mark without a waiting job: %q", text)
	}
}

// TestExcludedNodes checks that a job that excludes nodes is not moved, because it might not fit elsewhere.
func TestExcludedNodes(t *testing.T) {
	m := newMovingSlurm(t)
	m.jobs[1].ExcNodes = []string{"n3"}
	p := m.watcher(1440, "")
	for _, want := range []string{"1 caelum:moved=0:0", ""} {
		if text := m.round(p); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestMovesOnlyPermittedRun checks that the record that is read before the requeue must still permit the move, and that
// a moved job is never cancelled.
func TestMovesOnlyPermittedRun(t *testing.T) {
	for what, change := range map[string]func(*slurm.Job){
		"":                         func(*slurm.Job) {},
		"permission withdrawn":     func(j *slurm.Job) { j.Comment = "" },
		"must not be requeued":     func(j *slurm.Job) { j.Requeue = false },
		"another run":              func(j *slurm.Job) { j.Restarts++ },
		"the mark was removed":     func(j *slurm.Job) { j.AdminComment = "" },
		"marked for another job":   func(j *slurm.Job) { j.AdminComment = "caelum:moved=8:0" },
		"not a batch job any more": func(j *slurm.Job) { j.Batch = false },
	} {
		m := newMovingSlurm(t)
		m.jobs[1].AdminComment = "caelum:moved=9:0"
		step := preempt.Step{Do: preempt.Stop, Job: *m.jobs[1], Mode: preempt.Requeue, For: 9, Move: true}
		step.Job.Requeue = false // when the snapshot was read
		change(m.jobs[1])
		err := m.watcher(4, "").do(t.Context(), step)
		requeued := slices.Equal(m.calls, []string{"requeue 1"})
		if requeued != (what == "") || (err == nil) != requeued {
			t.Errorf("%q: %v %v", what, m.calls, err)
		}
	}
}

// TestSpend checks that each marked job postpones the next move.
func TestSpend(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := newMoves(Moves{PerDay: 4}, quiet())
	m.next = now.Add(-time.Hour)
	for range 3 {
		m.spend(now)
	}
	if want := now.Add(18 * time.Hour); !m.next.Equal(want) {
		t.Errorf("the next move may begin at %v, want %v", m.next, want)
	}
}

// TestMovesAllOrNone checks that no job is requeued if another job of the same move must not be moved any more.
func TestMovesAllOrNone(t *testing.T) {
	for withdrawn, want := range map[bool]bool{false: true, true: false} {
		m := newMovingSlurm(t)
		var steps []preempt.Step
		for _, id := range []uint32{1, 2} {
			j := *m.jobs[1]
			j.ID, j.AdminComment = id, "caelum:moved=9:0"
			if id == 2 && withdrawn {
				j.Comment = ""
			}
			m.jobs[id] = &j
			steps = append(steps, preempt.Step{Do: preempt.Stop, Job: j, Mode: preempt.Requeue, For: 9, Move: true})
		}
		if err := m.watcher(4, "").checkMoved(t.Context(), steps); (err == nil) != want {
			t.Errorf("withdrawn: %v, result %v", withdrawn, err)
		}
	}
}

// calls is a replacement of the site's program that blocks until its results are sent.
type calls struct {
	mu      sync.Mutex
	all     []string
	results chan error
}

func (c *calls) call(_ context.Context, action string, id uint32) error {
	c.mu.Lock()
	c.all = append(c.all, fmt.Sprint(action, " ", id))
	c.mu.Unlock()
	if action == "before" {
		return <-c.results
	}
	return nil
}

// wait waits until the calls are as expected.
func (c *calls) wait(t *testing.T, want ...string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		equal := slices.Equal(c.all, want)
		c.mu.Unlock()
		if equal {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("calls %v, want %v", c.all, want)
		}
	}
}

// TestMoveCommand checks that a job is requeued only after the site's program has succeeded, that the rounds do not
// wait for the program, and that a refusal ends the move.
func TestMoveCommand(t *testing.T) {
	for _, result := range []error{nil, errors.New("exit status 1")} {
		m, c := newMovingSlurm(t), &calls{results: make(chan error)}
		p := m.watcher(1440, "/etc/caelum/move")
		p.moves.call = c.call
		began := m.began()
		for _, want := range []string{began, "", ""} {
			if text := m.round(p); text != want {
				t.Errorf("%q, want %q", text, want)
			}
		}
		c.wait(t, "before 1")
		c.results <- result
		<-p.moves.runs[jobRun{1, 0}].ended
		want := "requeue 1"
		if result != nil {
			want = "1 caelum:moved=0:0, 9"
		}
		if text := m.round(p); text != want {
			t.Errorf("result %v: %q, want %q", result, text, want)
		}
		if text := m.round(p); text != "" {
			t.Errorf("result %v: then %q", result, text)
		}
		m.round(p)
		if c.wait(t, "before 1", "after 1"); len(p.moves.runs) > 0 {
			t.Errorf("result %v: %d calls remain", result, len(p.moves.runs))
		}
	}
}

// unknownRules is a slurmctld whose QOS cannot be read.
type unknownRules struct{ *movingSlurm }

func (unknownRules) Config(context.Context) (slurm.Config, error) {
	return slurm.Config{Values: map[string]string{
		"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "AccountingStorageType": "accounting_storage/slurmdbd",
	}}, nil
}
func (unknownRules) QOS(context.Context) ([]slurm.QOS, error) { return nil, errors.New("no slurmdbd") }

// TestMoveWithoutRules checks that no move begins while it is unknown whether Slurm's rules allow a preemption.
func TestMoveWithoutRules(t *testing.T) {
	m := newMovingSlurm(t)
	p := m.watcher(1440, "")
	p.ctl = unknownRules{m}
	if text := m.round(p); text != "" {
		t.Error(text)
	}
	p.ctl, p.read = m, time.Time{}
	if text := m.round(p); text != m.began() {
		t.Errorf("with rules: %q", text)
	}
}

// TestMovesOfNewPlanner checks that a watcher which has started waits before its first move.
func TestMovesOfNewPlanner(t *testing.T) {
	m := newMovingSlurm(t)
	q := &queue{node: m.snapshot().Nodes[0]}
	w := New(Config{
		TriggerFile: filepath.Join(t.TempDir(), "trigger"), Name: "ctl", Planner: true, Preemptor: m,
		Settings: plan.Settings{Policy: place.Reach, Tightest: true}, Moves: Moves{PerDay: 24},
	}, q, quiet())
	began := time.Now()
	if _, err := w.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if wait := w.preemption.moves.next.Sub(began); wait < time.Hour || wait > time.Hour+time.Minute {
		t.Errorf("the first move may begin after %v", wait)
	}
}
