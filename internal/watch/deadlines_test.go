package watch

import (
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"caelum/internal/place"
	"caelum/internal/plan"
	"caelum/internal/slurm"
)

// TestReportDeadlines checks that the watcher logs a job that cannot meet its deadline once, and again only after the
// job could meet it in the meantime.
func TestReportDeadlines(t *testing.T) {
	log, hook := test.NewNullLogger()
	d, settings := deadlines{}, plan.Settings{Policy: place.Reach, Tightest: true}
	at := time.Unix(1e9, 0)
	for round, deadline := range []int{10, 10, 7200, 10} {
		w := job(t, 5, "mig:1g.5gb:1")
		w.TimeLimit, w.Deadline = time.Hour, at.Add(time.Duration(deadline)*time.Second)
		v := plan.New(snapshotOf([]slurm.Node{node(t, "n1", "", "mig:closed:28", "")}, w), settings, nil)
		d.report(v, v.Plan(), logrus.NewEntry(log))
		if got, want := len(hook.AllEntries()), []int{1, 1, 1, 2}[round]; got != want {
			t.Errorf("round %d: %d lines, want %d", round, got, want)
		}
	}
}
