package watch

import (
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// TestReportDeadlines checks that the watcher logs a job that cannot meet its deadline once while it waits, even if
// its user holds and releases it, and again after the job has left the queue.
func TestReportDeadlines(t *testing.T) {
	log, hook := test.NewNullLogger()
	d, settings := deadlines{}, plan.Settings{Policy: place.Reach, Tightest: true}
	at := time.Unix(1e9, 0)
	waiting := func(id uint32) slurm.Waiting {
		w := job(t, id, "mig:1g.5gb:1")
		w.TimeLimit, w.Deadline = time.Hour, at.Add(10*time.Second)
		return w
	}
	late, inTime, held, other := waiting(5), waiting(5), waiting(5), job(t, 6, "mig:1g.5gb:1")
	inTime.Deadline = at.Add(2 * time.Hour)
	held.Priority, held.Reason = 0, "JobHeldUser"
	for round, c := range []struct {
		waits slurm.Waiting
		lines int
	}{{inTime, 0}, {late, 1}, {late, 1}, {held, 1}, {late, 1}, {inTime, 1}, {late, 1}, {other, 1}, {late, 2}} {
		snapshot := snapshotOf([]slurm.Node{node(t, "n1", "", "mig:closed:28", "")}, c.waits)
		v := plan.New(snapshot, settings, nil)
		d.report(snapshot, v, v.Plan(), logrus.NewEntry(log))
		if got := len(hook.AllEntries()); got != c.lines {
			t.Errorf("round %d: %d lines, want %d", round, got, c.lines)
		}
	}
}
