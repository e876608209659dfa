package usage

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/core/predict"
	"caelum/internal/node/usage/usagetest"
	"caelum/internal/slurm"
)

// began is the start of the runs in these tests.
var began = time.Unix(1795339216, 0)

// runs returns the record of a run that has not ended.
func runs(job uint32, start time.Time, text string) slurm.Record {
	return slurm.Record{ID: job, State: "RUNNING", Start: start, Text: text}
}

// completed returns the records of a job whose only run has ended.
func completed(job uint32, text string) []slurm.Record {
	return []slurm.Record{{ID: job, State: "COMPLETED", Start: began, End: began.Add(time.Minute), Text: text}}
}

// newRecorder returns a Monitor without samplers, and its repository.
func newRecorder(node string, d *usagetest.Accounting, now *time.Time) (*Monitor, *usagetest.Repository) {
	repo := usagetest.NewRepository()
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	m := NewMonitor(Options{
		Node: node, Field: slurm.AdminComment, Log: logrus.NewEntry(log), Now: func() time.Time { return *now },
	})
	m.SetRepository(repo, d)
	return m, repo
}

func ran(node string, job uint32) predict.Run {
	return predict.Run{
		Job:       job,
		Node:      node,
		GPUType:   "a100",
		Profile:   "2g.10gb",
		Slices:    1,
		Start:     began.Unix(),
		Seconds:   60,
		Samples:   60,
		PeakMiB:   5321,
		HighMiB:   5100,
		MedianMiB: 4800,
		Util:      -1,
	}
}

// TestRecorder checks the steps for one run. Once slurmdbd has the end of the run, the recorder appends the summary
// to the record's field. When a later call has read it back from slurmdbd, the run is removed from the outbox.
func TestRecorder(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	const others = `other's {"text": 1}  two blanks`
	d := usagetest.NewAccounting()
	d.Records[7] = []slurm.Record{runs(7, began.Add(time.Second), others)}
	m, repo := newRecorder("n1", d, &now)
	r := ran("n1", 7)
	if err := repo.Ended(r, now); err != nil {
		t.Fatal(err)
	}
	step := func(wantWaiting int, wantState string) {
		t.Helper()
		if wait := m.recordDue(ctx); wait <= 0 || wait > longestPause {
			t.Errorf("the next attempt is in %v", wait)
		}
		now = now.Add(longestPause)
		if n, _ := repo.Waiting(); n != wantWaiting || repo.Kept()[0].State != wantState {
			t.Errorf("%d runs wait, the state is %q; want %d and %q", n, repo.Kept()[0].State, wantWaiting, wantState)
		}
	}
	step(1, "")
	d.Records[7][0].State, d.Records[7][0].Exit, d.Records[7][0].End = "CANCELLED", 3, now
	step(1, "CANCELLED")
	want := others + " " + strings.ToLower(r.Summary())
	if got := d.Text(7); got != want {
		t.Errorf("written: %q, want %q", got, want)
	}
	if m.waiting.Load() != 1 {
		t.Error("the summary counts as recorded before the recorder has read the summary from slurmdbd")
	}
	step(0, "CANCELLED")
	calls := d.Calls
	step(0, "CANCELLED")
	if d.Calls != calls || d.Text(7) != want || repo.Kept()[0].Exit != 3 || m.waiting.Load() != 0 {
		t.Errorf("%d calls after the summary was recorded, %q, %+v", d.Calls-calls, d.Text(7), repo.Kept()[0])
	}
}

// TestRecorderStream lets a job end every second, and checks that the recorder writes each summary within 10 s of the
// job's end. slurmdbd has the end of a job one second later than the node.
func TestRecorderStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait() // for the recorder
		defer cancel()
		now := time.Now()
		d := usagetest.NewAccounting()
		m, repo := newRecorder("n1", d, &now)
		m.Now = time.Now
		var mu sync.Mutex // guards the maps, which the recorder's goroutine uses as well
		written := map[uint32]time.Duration{}
		ends := map[uint32]time.Time{}
		d.Wrote = func() {
			mu.Lock()
			defer mu.Unlock()
			for job, end := range ends {
				if _, ok := written[job]; !ok && d.Text(job) != "" {
					written[job] = time.Since(end)
				}
			}
		}
		go m.recorder(ctx)
		for job := uint32(1); job <= 60; job++ {
			r := ran("n1", job)
			r.Start = time.Now().Unix()
			end := time.Now()
			mu.Lock()
			ends[job] = end
			mu.Unlock()
			d.Set(job, runs(job, end, ""))
			if err := repo.Ended(r, end); err != nil {
				t.Fatal(err)
			}
			m.toRecord <- struct{}{}
			time.Sleep(time.Second)
			synctest.Wait()
			d.Set(job, slurm.Record{ID: job, State: "COMPLETED", Start: end, End: time.Now()})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for job := range ends {
			if after, ok := written[job]; !ok || after > 10*time.Second {
				t.Errorf("job %d: summary written: %v, %v after the end", job, ok, after)
			}
		}
	})
}

// TestRecorderRequeued checks a requeued job, which has a record for each run. The recorder must write only the
// newest record, and only after its run has ended. It must read the end of each run from that run's record, where the
// start may differ slightly from the start according to the node's clock, and must not use the record of an older job
// with the same id.
func TestRecorderRequeued(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	first, second := ran("n1", 7), ran("n1", 7)
	second.Restart, second.Start = 1, began.Add(5*time.Minute).Unix()
	d.Records[7] = []slurm.Record{
		{
			ID:    7,
			State: "FAILED",
			Start: began.Add(-1000 * time.Hour),
			End:   began.Add(-999 * time.Hour),
			Text:  "another job",
		},
		{ID: 7, State: "REQUEUED", Start: began.Add(-2 * time.Second), End: now},
		runs(7, began.Add(5*time.Minute), "again"),
	}
	m, repo := newRecorder("n1", d, &now)
	if err := repo.Ended(first, now); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.recordDue(ctx)
		now = now.Add(longestPause)
	}
	if n, _ := repo.Waiting(); n != 1 || d.Text(7) != "again" || repo.Kept()[0].State != "REQUEUED" {
		t.Errorf("during the second run: %d runs wait, %q, %+v", n, d.Text(7), repo.Kept()[0])
	}
	d.Records[7][2].State, d.Records[7][2].End = "COMPLETED", now
	if err := repo.Ended(second, now); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		m.recordDue(ctx)
		now = now.Add(longestPause)
	}
	words := strings.Fields(d.Text(7))
	if n, _ := repo.Waiting(); n != 0 || len(words) != 3 || strings.Contains(words[1], "restart=") ||
		!strings.Contains(words[2], "restart=1") ||
		repo.Kept()[1].State != "COMPLETED" {
		t.Errorf("%d runs wait, %q, %+v", n, d.Text(7), repo.Kept())
	}
	if d.Refused != 0 {
		t.Errorf("slurmdbd rejected %d writes", d.Refused)
	}
	if d.Records[7][0].Text != "another job" {
		t.Errorf("the record of an older job was changed to %q", d.Records[7][0].Text)
	}
}

// TestRecorderSpoilsNothing checks that the recorder does not write if sacctmgr would change another tool's text in
// the field. The run must be stored with its state, and the recorder must not try again.
func TestRecorderSpoilsNothing(t *testing.T) {
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	d.Records[7] = completed(7, "Another tool's")
	m, repo := newRecorder("n1", d, &now)
	if err := repo.Ended(ran("n1", 7), now); err != nil {
		t.Fatal(err)
	}
	m.recordDue(context.Background())
	if n, _ := repo.Waiting(); n != 0 || d.Text(7) != "Another tool's" || repo.Kept()[0].State != "COMPLETED" {
		t.Errorf("%d runs wait, %q, %+v", n, d.Text(7), repo.Kept()[0])
	}
}

// TestRecorderWritesNothing checks that with accounting_field none, the recorder reads the end of a run, but writes
// nothing.
func TestRecorderWritesNothing(t *testing.T) {
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	d.Records[7] = []slurm.Record{{ID: 7, State: "FAILED", Exit: 1, Start: began, End: now, Text: "x"}}
	m, repo := newRecorder("n1", d, &now)
	m.Field = ""
	if err := repo.Ended(ran("n1", 7), now); err != nil {
		t.Fatal(err)
	}
	m.recordDue(context.Background())
	if n, _ := repo.Waiting(); n != 0 || d.Text(7) != "x" || repo.Kept()[0].State != "FAILED" {
		t.Errorf("%d runs wait, %q, %+v", n, d.Text(7), repo.Kept()[0])
	}
}

// TestRecorderRetries checks that the recorder repeats failed attempts after growing pauses, one call at a time, and
// gives up after 730 attempts. The run must remain in the repository.
func TestRecorderRetries(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	d.Records[7], d.Records[8] = completed(7, ""), completed(8, "")
	d.Away = errors.New("slurmdbd: connection refused")
	m, repo := newRecorder("n1", d, &now)
	for _, job := range []uint32{7, 8} {
		if err := repo.Ended(ran("n1", job), now); err != nil {
			t.Fatal(err)
		}
	}
	if wait := m.recordDue(ctx); wait != firstPause || d.Calls != 1 {
		t.Errorf("%d calls to an unreachable slurmdbd without a pause, then a pause of %v", d.Calls, wait)
	}
	for range 30 {
		m.recordDue(ctx)
		now = now.Add(20 * time.Minute)
	}
	if n, _ := repo.Waiting(); n != 2 || d.Calls > 60 {
		t.Errorf("%d runs wait after %d calls in 10 h", n, d.Calls)
	}
	d.Away = nil
	for range 4 {
		now = now.Add(longestPause)
		m.recordDue(ctx)
	}
	if n, _ := repo.Waiting(); n != 0 || !strings.Contains(d.Text(7), "caelum:run=n1,") ||
		!strings.Contains(d.Text(8), "caelum:run=n1,") {
		t.Errorf("%d runs wait after slurmdbd answers again: %q, %q", n, d.Text(7), d.Text(8))
	}

	d.Away = errors.New("not allowed")
	if err := repo.Ended(ran("n1", 9), now); err != nil {
		t.Fatal(err)
	}
	since := now
	for n := 1; n > 0 && now.Sub(since) < 60*24*time.Hour; n, _ = repo.Waiting() {
		m.recordDue(ctx)
		next, _, _ := repo.Next()
		if next.After(now) {
			now = next
		}
	}
	if days := now.Sub(since).Hours() / 24; days < 15 || days > 31 || len(repo.Kept()) != 3 {
		t.Errorf("the recorder gave up after %.1f days, %d runs in the repository", days, len(repo.Kept()))
	}
}

// TestRecorderAwaitsRequeued checks a requeued run for which slurmdbd has no record of the next run yet. The recorder
// must not write to the old record, because plain sacct shows only the newest. If no record ever comes, it must.
func TestRecorderAwaitsRequeued(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	requeued := slurm.Record{State: "REQUEUED", Start: began, End: began.Add(time.Minute)}
	m, repo := newRecorder("n1", d, &now)
	for job := range uint32(2) {
		requeued.ID = job + 7
		d.Set(requeued.ID, requeued)
		if err := repo.Ended(ran("n1", requeued.ID), now); err != nil {
			t.Fatal(err)
		}
	}
	again := func() {
		for range awaitRequeued {
			m.recordDue(ctx)
			now = now.Add(longestPause)
		}
	}
	again()
	if n, _ := repo.Waiting(); n != 2 || d.Text(7) != "" || d.Text(8) != "" {
		t.Fatalf("%d runs wait, %q, %q", n, d.Text(7), d.Text(8))
	}
	d.Set(7, d.Records[7][0], slurm.Record{ID: 7, State: "COMPLETED", Start: now.Add(-time.Hour), End: now})
	again()
	for job := range uint32(2) {
		if !strings.Contains(d.Text(job+7), "caelum:run=n1,") {
			t.Errorf("job %d: %q", job+7, d.Text(job+7))
		}
	}
	if n, _ := repo.Waiting(); n != 0 || d.Records[7][0].Text != "" {
		t.Errorf("%d runs wait, %q", n, d.Records[7][0].Text)
	}
}

// TestRecorderRequeuedDuringWrite checks a failed job that `scontrol requeue` starts again. Its next record reaches
// slurmdbd after the recorder has read the records and before sacctmgr writes the summary, which therefore gets into
// the record of the next run. slurmctld overwrites the field when this run ends, and the recorder must write the
// summary again.
func TestRecorderRequeuedDuringWrite(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	d.Records[7] = []slurm.Record{{ID: 7, State: "FAILED", Start: began, End: began.Add(time.Minute), Text: "tags"}}
	d.Wrote = func() {
		if all := d.Records[7]; len(all) == 1 { // sacctmgr finds only the newest record
			all = append(all, slurm.Record{ID: 7, State: "PENDING", Text: all[0].Text})
			all[0].Text = "tags"
			d.Records[7] = all
		}
	}
	m, repo := newRecorder("n1", d, &now)
	if err := repo.Ended(ran("n1", 7), now); err != nil {
		t.Fatal(err)
	}
	again := func() {
		for range 3 {
			m.recordDue(ctx)
			now = now.Add(longestPause)
		}
	}
	again()
	if n, _ := repo.Waiting(); n != 1 || !strings.Contains(d.Text(7), "caelum:run=n1,") {
		t.Fatalf("before the second run: %d runs wait, %q", n, d.Text(7))
	}
	next := &d.Records[7][1]
	next.State, next.Start, next.End, next.Text = "COMPLETED", now.Add(-time.Hour), now, "tags"
	again()
	if n, _ := repo.Waiting(); n != 0 || !strings.Contains(d.Text(7), "caelum:run=n1,") || d.Refused != 0 {
		t.Errorf("after the second run: %d runs wait, %q, %d rejected writes", n, d.Text(7), d.Refused)
	}
}

// TestTwoRecorders checks two agents that write the same job's field at the same time and overwrite each other's
// summaries. In the end, both must be there.
func TestTwoRecorders(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1795339300, 0)
	d := usagetest.NewAccounting()
	d.Records[7] = completed(7, "kept")
	one, r1 := newRecorder("n1", d, &now)
	two, r2 := newRecorder("n2", d, &now)
	for node, repo := range map[string]*usagetest.Repository{"n1": r1, "n2": r2} {
		if err := repo.Ended(ran(node, 7), now); err != nil {
			t.Fatal(err)
		}
	}
	// The first write is lost, because the second agent reads the field before it and writes the field after it.
	lost := false
	d.Wrote = func() {
		if !lost {
			lost = true
			d.Records[7][0].Text = strings.ToLower(predict.WithSummary("kept", ran("n2", 7)))
		}
	}
	for range 6 {
		one.recordDue(ctx)
		two.recordDue(ctx)
		now = now.Add(time.Minute)
	}
	if got := d.Text(7); !lost || !strings.HasPrefix(got, "kept ") || strings.Count(got, "caelum:run=") != 2 ||
		!strings.Contains(got, "caelum:run=n1,") ||
		!strings.Contains(got, "caelum:run=n2,") {
		t.Errorf("%q", got)
	}
	for node, repo := range map[string]*usagetest.Repository{"n1": r1, "n2": r2} {
		if n, _ := repo.Waiting(); n != 0 {
			t.Errorf("the outbox of %s still contains a run", node)
		}
	}
}

// TestBackoff checks that the pauses grow from seconds to an hour, and that each pause is partly random.
func TestBackoff(t *testing.T) {
	longest := map[int]time.Duration{0: firstPause, 3: 8 * firstPause, 10: longestPause, 700: longestPause}
	for tries, most := range longest {
		seen := map[time.Duration]bool{}
		for range 20 {
			d := backoff(tries)
			if d <= most/2-1 || d > most {
				t.Errorf("after %d tries: %v, want between %v and %v", tries, d, most/2, most)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("after %d tries, the pause is always %v", tries, seen)
		}
	}
}
