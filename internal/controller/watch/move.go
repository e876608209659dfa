package watch

import (
	"context"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/plan"
	"caelum/internal/core/preempt"
	"caelum/internal/core/tags"
	"caelum/internal/hook"
	"caelum/internal/slurm"
)

// Moves is the configuration of moves of running jobs.
type Moves struct {
	PerDay     int      // the number of jobs that may be moved within 24 hours; 0 means that no jobs are moved
	Partitions []string // the partitions whose jobs may be moved without the permission of their users
	Command    string   // the path of the site's program that is called before and after a move, or empty
}

// commandLimit limits the duration of one call to the site's program. It is shorter than plan.KeepRoom, because the
// plan must still keep the room for the waiting job after the program has ended.
const commandLimit = 2 * time.Minute

// moves limits the number of moved jobs and calls the site's program. It keeps its state only in memory. After a start,
// and while another planner is active, the next move is postponed by the time between two moves.
type moves struct {
	cfg  Moves
	log  *logrus.Entry
	next time.Time // the earliest time at which a move may begin; zero until the planner has been inactive
	runs map[jobRun]*call
	call func(ctx context.Context, action string, id uint32) error
}

// jobRun identifies a run of a job.
type jobRun struct {
	job      uint32
	restarts int
}

// call is a call of the site's program before a run is moved.
type call struct {
	ended chan struct{}
	err   error // valid once ended is closed
}

func newMoves(cfg Moves, log *logrus.Entry) *moves {
	m := &moves{cfg: cfg, log: log, runs: map[jobRun]*call{}}
	m.call = func(ctx context.Context, action string, id uint32) error {
		return hook.Run(ctx, cfg.Command, commandLimit, action, strconv.FormatUint(uint64(id), 10))
	}
	return m
}

// delay postpones the next move by the time between two moves.
func (m *moves) delay(now time.Time) {
	if m.cfg.PerDay > 0 {
		m.next = now.Add(24 * time.Hour / time.Duration(m.cfg.PerDay))
	}
}

// spend postpones the next move because a job has been marked. If several jobs are marked for one waiting job, each of
// them counts.
func (m *moves) spend(now time.Time) {
	if m.next.After(now) {
		now = m.next
	}
	m.delay(now)
}

// mayBegin reports whether a move may begin now.
func (m *moves) mayBegin(now time.Time) bool {
	return !m.next.IsZero() && !now.Before(m.next)
}

// prepare calls the site's program before the moves in steps, without waiting for it to end. It returns the steps to
// carry out in this round: those that end runs are left out until all calls have succeeded, and a call that fails ends
// the move. again is true if calls have not ended.
func (m *moves) prepare(ctx context.Context, s plan.Snapshot, steps []preempt.Step) (now []preempt.Step, again bool) {
	m.finish(ctx, s)
	var stops, refused []preempt.Step
	for _, step := range steps {
		if step.Do != preempt.Stop || !step.Move || m.cfg.Command == "" {
			now = append(now, step)
			continue
		}
		stops = append(stops, step)
		ended, err := m.before(ctx, jobRun{step.Job.ID, step.Job.Restarts})
		again = again || !ended
		if err != nil {
			m.log.WithError(err).WithField("job", step.Job.ID).Warn("move refused by move_command; the job continues")
			refused = append(refused, step)
		}
	}
	switch {
	case refused != nil:
		return append(now, preempt.Refuse(s, refused)...), true
	case again:
		return now, true
	}
	return append(now, stops...), false
}

// before starts the call for a run unless it has already been started. err is the result of a call that has ended.
func (m *moves) before(ctx context.Context, r jobRun) (ended bool, err error) {
	c := m.runs[r]
	if c == nil {
		c = &call{ended: make(chan struct{})}
		m.runs[r] = c
		go func() {
			c.err = m.call(ctx, "before", r.job)
			close(c.ended)
		}()
	}
	select {
	case <-c.ended:
		return true, c.err
	default:
		return false, nil
	}
}

// finish calls the site's program after each move that has been carried out or abandoned, that is, for each run that no
// longer has the mark of a move.
func (m *moves) finish(ctx context.Context, s plan.Snapshot) {
	marked := map[jobRun]bool{}
	for k := range s.Queue.All {
		if p, ok := tags.PreemptedBy(s.Queue.All[k]); ok && p.Move && s.Queue.All[k].Holds() {
			marked[jobRun{s.Queue.All[k].ID, s.Queue.All[k].Restarts}] = true
		}
	}
	for r, c := range m.runs {
		if marked[r] {
			continue
		}
		delete(m.runs, r)
		go func() {
			<-c.ended
			if err := m.call(ctx, "after", r.job); err != nil {
				m.log.WithError(err).WithField("job", r.job).Warn("move_command failed after a move")
			}
		}()
	}
}

// permits reports whether a job that is about to be moved may still be moved, according to its current record.
func (m *moves) permits(j slurm.Job) bool {
	return j.Batch && j.Requeue && preempt.Settings{Partitions: m.cfg.Partitions}.Permits(j)
}
