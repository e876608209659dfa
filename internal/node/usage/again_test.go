package usage

import (
	"context"
	"errors"
	"testing"
	"time"

	"caelum/internal/node/usage/usagetest"
)

// TestRestartOfSlurmctld restarts slurmctld after a summary was recorded, which replaces the record's field. The
// recorder must rewrite the summary, without a request to slurmdbd for any run that the restart cannot affect.
func TestRestartOfSlurmctld(t *testing.T) {
	ctx := context.Background()
	now := began.Add(time.Minute)
	d := usagetest.NewAccounting()
	d.Records[7] = completed(7, "tags")
	m, repo := newRecorder("n1", d, &now)
	ctl, asked, away := SlurmctldTimes{Started: began.Add(-time.Hour), Memory: 5 * time.Minute}, 0, error(nil)
	m.SlurmctldTimes = func(context.Context) (SlurmctldTimes, error) { asked++; return ctl, away }
	run := ran("n1", 7)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(repo.Ended(run, now))
	after := func(pause time.Duration) {
		t.Helper()
		for end := now.Add(pause); now.Before(end); now = now.Add(min(m.recordDue(ctx), end.Sub(now))) {
		}
	}
	written := func() bool { return hasSummary(d.Text(7), run.Summary()) }

	after(time.Minute)
	if !written() || m.waiting.Load() != 0 || asked != 1 {
		t.Fatalf("%q, %d waiting, %d requests to slurmctld", d.Text(7), m.waiting.Load(), asked)
	}
	d.Records[7][0].Text, ctl.Started, away = "tags", now, errors.New("slurmctld does not answer")
	after(7 * time.Minute)
	if asked < 2 || written() {
		t.Fatalf("%d requests to slurmctld, %q", asked, d.Text(7))
	}
	away = nil
	after(3 * time.Minute)
	if !written() || m.waiting.Load() != 0 {
		t.Errorf("after a restart of slurmctld: %q, %d waiting", d.Text(7), m.waiting.Load())
	}

	// slurmctld has forgotten the job, so a further restart cannot affect its record.
	after(time.Hour)
	ctl.Started, asked = now, 0
	calls := d.Calls
	after(time.Hour)
	if asked != 0 || d.Calls != calls {
		t.Errorf("%d requests to slurmctld and %d to slurmdbd", asked, d.Calls-calls)
	}
	m, _ = newRecorder("n1", d, &now)
	m.repo, m.SlurmctldTimes = repo, func(context.Context) (SlurmctldTimes, error) { asked++; return ctl, nil }
	after(time.Hour)
	if asked != 1 || d.Calls != calls {
		t.Errorf("a new agent: %d requests to slurmctld and %d to slurmdbd", asked, d.Calls-calls)
	}
}
