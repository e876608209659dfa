package learn

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// dbd emulates slurmdbd with the given records and names.
type dbd struct {
	records []slurm.Record
	names   map[uint64]string
	busy    bool          // if true, every page has many of other users' jobs
	most    time.Duration // if not 0, the longest page that is not too long
	err     error         // the error that every call returns
	nameErr error
	pages   []string // "from-to" for each query, in hours after began
	asked   int      // the number of queries for single jobs
}

const key, work = "0123456789abcdef", "fedcba9876543210"

var began = time.Unix(1795339216, 0)

func (d *dbd) Records(
	_ context.Context,
	field slurm.AccountingField,
	from, to time.Time,
) (all []slurm.Record, err error) {
	d.pages = append(d.pages, fmt.Sprintf("%.0f-%.0f", from.Sub(began).Hours(), to.Sub(began).Hours()))
	for _, r := range d.records {
		if !r.Start.After(to) && (r.End.IsZero() || !r.End.Before(from)) {
			all = append(all, r)
		}
	}
	if d.most > 0 && to.Sub(from) > d.most {
		return nil, fmt.Errorf("sacct: %w", slurm.ErrTooLong)
	}
	if d.busy {
		all = append(all, make([]slurm.Record, fewJobs)...)
	}
	return all, d.err
}

func (d *dbd) RecordsOf(_ context.Context, field slurm.AccountingField, id uint32) (all []slurm.Record, err error) {
	d.asked++
	for _, r := range d.records {
		if r.ID == id {
			all = append(all, r)
		}
	}
	return all, d.err
}

func (d *dbd) Names(context.Context, time.Time, time.Time) (map[uint64]string, error) {
	return d.names, errors.Join(d.err, d.nameErr)
}

// seen returns a run with the fields that the agent on its node stores.
func seen(job uint32, node string, start time.Time) predict.Run {
	return predict.Run{
		Job: job, Node: node, Key: key, Fingerprint: work,
		UID: 1001, User: "user1", Account: "research", Name: "train",
		GPUType: "a100", Profile: "7g.40gb", Slices: 1, Start: start.Unix(), Seconds: 600,
		Samples: 600, PeakMiB: 5000, MedianMiB: 4000, HighMiB: 4900, Util: 0.5, State: "COMPLETED",
	}
}

// record returns slurmdbd's record of a job that ran for ten minutes, with the summaries of the given runs in lower
// case.
func record(index uint64, job uint32, start time.Time, nodes []string, runs ...predict.Run) slurm.Record {
	text := "caelum:key=" + key + " caelum:work=" + work + " caelum:sized=7g.40gb"
	for _, n := range runs {
		text = predict.WithSummary(text, n)
	}
	return slurm.Record{
		ID:      job,
		Ref:     fmt.Sprint(job),
		Index:   index,
		UID:     1001,
		User:    "user1",
		Account: "research",
		State:   "COMPLETED",
		Start:   start,
		End:     start.Add(10 * time.Minute),
		Nodes:   nodes,
		Comment: strings.ToLower(text),
		Text:    strings.ToLower(text),
	}
}

func fresh(t *testing.T) *repo.Repo {
	t.Helper()
	r, err := repo.Open(filepath.Join(t.TempDir(), "repo.db"), func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func export(t *testing.T, r *repo.Repo) string {
	t.Helper()
	var b strings.Builder
	if err := r.Export(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func add(t *testing.T, r *repo.Repo, runs ...predict.Run) {
	t.Helper()
	if _, err := r.Add(runs...); err != nil {
		t.Fatal(err)
	}
}

// requeued returns an emulated slurmdbd with a requeued job, and the job's two runs. As in reality, only the job's
// last record has the agents' summaries of both runs.
func requeued() (*dbd, []predict.Run) {
	later := began.Add(30 * time.Hour)
	first, second := seen(8, "GPU1", began.Add(2*time.Second)), seen(8, "gpu2", later)
	first.State, second.Restart, second.State, second.Exit = "REQUEUED", 1, "FAILED", 3
	a, b := record(13, 8, began, []string{"GPU1"}), record(15, 8, later, []string{"gpu2"}, first, second)
	a.State, b.State, b.Exit = "REQUEUED", "FAILED", 3
	return &dbd{
			records: []slurm.Record{a, b},
			names:   map[uint64]string{13: "train", 15: "train"},
		}, []predict.Run{
			first,
			second,
		}
}

// TestSyncEqualsTheNode checks that a sync creates the same repository, byte for byte, as the nodes that observed the
// runs. The runs include a job on two nodes, a requeued job, a job name with a newline, and a run without samples.
func TestSyncEqualsTheNode(t *testing.T) {
	d, runs := requeued()
	at := began.Add(time.Hour)
	wide := []predict.Run{seen(9, "gpu1x", at), seen(9, "gpu2", at)}
	wide[0].Name, wide[1].Name, wide[1].Slices = "a\n'b\"", "a\n'b\"", 2
	blind := seen(10, "gpu2", at)
	blind.Samples, blind.PeakMiB, blind.MedianMiB, blind.HighMiB, blind.Util = 0, 0, 0, 0, -1
	d.records = append(
		d.records,
		record(16, 9, at, []string{"gpu1x", "gpu2"}, wide...),
		record(17, 10, at, []string{"gpu2"}, blind),
	)
	d.names[16], d.names[17] = "a\n'b`", "train" // the names as slurmdbd stores them

	node, host := fresh(t), fresh(t)
	add(t, node, append(runs, wide[0], wide[1], blind)...)
	done, err := Sync(t.Context(), d, host, slurm.AdminComment, time.Time{}, began.Add(48*time.Hour))
	if err != nil || done.New != 5 {
		t.Fatalf("%+v %v", done, err)
	}
	if a, b := export(t, node), export(t, host); a != b {
		t.Errorf("observed on the nodes:\n%sread from slurmdbd:\n%s", a, b)
	}
	again, err := Sync(t.Context(), d, host, slurm.AdminComment, time.Time{}, began.Add(48*time.Hour))
	if err != nil || again.New != 0 || export(t, node) != export(t, host) {
		t.Errorf("again: %+v %v", again, err)
	}
}

// TestSyncIgnores checks that a sync ignores what other tools wrote, and summaries that contradict slurmdbd's record.
func TestSyncIgnores(t *testing.T) {
	good := seen(1, "n1", began)
	for name, spoil := range map[string]func(*slurm.Record){
		"a node that the job did not have": func(r *slurm.Record) { r.Nodes = []string{"n2"} },
		"a start that the job did not have": func(r *slurm.Record) {
			r.Start, r.End = r.Start.Add(2*time.Hour), r.End.Add(2*time.Hour)
		},
		"a job that still runs":    func(r *slurm.Record) { r.End = time.Time{} },
		"a job that never started": func(r *slurm.Record) { r.Start = time.Time{} },
		"half a summary":           func(r *slurm.Record) { r.Text = good.Summary()[:30] },
		"the text of another tool": func(r *slurm.Record) {
			r.Text = "js1:h4siaaaa caelum:run=forged caelum:run= caelum:run=,,,at=1,ran=1s"
		},
		"no text in the field": func(r *slurm.Record) { r.Text = "" },
		"a time that is too large": func(r *slurm.Record) {
			r.Text = "caelum:run=n1,7g.40gb,a100,at=99999999999999999999,ran=1s"
		},
	} {
		rec := record(1, 1, began, []string{"n1"}, good)
		spoil(&rec)
		r := fresh(t)
		d := &dbd{records: []slurm.Record{rec}}
		from, to := began.Add(-time.Hour), began.Add(3*time.Hour)
		done, err := Sync(t.Context(), d, r, slurm.AdminComment, from, to)
		if err != nil || done.Runs != 0 || export(t, r) != "" {
			t.Errorf("%s: %+v %v\n%s", name, done, err, export(t, r))
		}
	}
	// A sync must ignore an invalid key, but still store the run.
	rec := record(1, 1, began, []string{"n1"}, good)
	rec.Comment = "caelum:key=';drop caelum:work=" + strings.ToUpper(work)
	r := fresh(t)
	d := &dbd{records: []slurm.Record{rec}, nameErr: errors.New("injected")}
	done, err := Sync(t.Context(), d, r, slurm.AdminComment, began.Add(-time.Hour), began.Add(3*time.Hour))
	if err != nil || done.New != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if text := export(t, r); strings.Contains(text, `"key"`) || strings.Contains(text, `"work"`) ||
		strings.Contains(text, `"name"`) {
		t.Error(text)
	}
}

// TestSyncGoesOn checks the time range of each sync. A sync begins one hour before the end of the previous one or, once
// a day, 30 days before. It also begins earlier after the clock has been set back. After a failed sync, the next one
// continues where it stopped.
func TestSyncGoesOn(t *testing.T) {
	r, d := fresh(t), &dbd{}
	sync := func(now time.Time, since time.Time) string {
		t.Helper()
		d.pages = nil
		if _, err := Sync(t.Context(), d, r, slurm.AdminComment, since, now); err != nil && d.err == nil {
			t.Fatal(err)
		}
		if len(d.pages) == 0 {
			return "none"
		}
		first, _, _ := strings.Cut(d.pages[0], "-")
		if strings.HasPrefix(d.pages[0], "-") {
			first = "-" + strings.SplitN(d.pages[0], "-", 3)[1]
		}
		last := d.pages[len(d.pages)-1]
		return fmt.Sprintf("%d pages from %s to %s", len(d.pages), first, last[strings.LastIndex(last, "-")+1:])
	}
	d.err = slurm.ErrNoAccounting
	if got := sync(began, time.Time{}); got != "1 pages from -9600 to 9576" {
		t.Errorf("slurmdbd is unreachable: %s", got)
	}
	d.err = nil
	for _, c := range []struct {
		hours int
		want  string
	}{
		{0, "17 pages from -9600 to 0"},
		{2, "1 pages from -1 to 2"},
		{23, "1 pages from 1 to 23"},
		{24, "5 pages from -697 to 24"}, // a day later
		{25, "1 pages from 23 to 25"},
		{20, "1 pages from 19 to 20"}, // the clock was set back
		{21, "1 pages from 19 to 21"},
		{100, "6 pages from -699 to 100"},
	} {
		if got := sync(began.Add(time.Duration(c.hours)*time.Hour), time.Time{}); got != c.want {
			t.Errorf("at %d: %s, want %s", c.hours, got, c.want)
		}
	}
	if got := sync(began.Add(200*time.Hour), began.Add(190*time.Hour)); got != "1 pages from 190 to 200" {
		t.Errorf("since: %s", got)
	}
	if got := sync(began.Add(101*time.Hour), time.Time{}); got != "1 pages from 99 to 101" {
		t.Errorf("after a sync with since, which skipped a period: %s", got)
	}
	d.busy = true
	if got := sync(began, began.Add(-240*time.Hour)); got != "10 pages from -240 to 0" {
		t.Errorf("with many jobs: %s", got)
	}
	if got := sync(began, began.Add(time.Hour)); got != "none" {
		t.Errorf("since a future time: %s", got)
	}
}

// FuzzSync checks that no text in an admin_comment can prevent a sync from reading the other runs.
func FuzzSync(f *testing.F) {
	f.Add(
		"caelum:run=n1,2g.10gb,a100,at=1795339216,ran=3590s,peak=5321m,p95=5100m,median=4800m,util=37%,samples=3590",
		"caelum:key=x",
	)
	f.Add("caelum:run=n1,ax2x3,a100,at=1795339216,ran=1e300s", "caelum:key=0123456789abcdef")
	f.Fuzz(func(t *testing.T, text, comment string) {
		r := fresh(t)
		odd := record(1, 1, began, []string{"n1"})
		odd.Text, odd.Comment = text, comment
		d := &dbd{records: []slurm.Record{odd, record(2, 2, began, []string{"n1"}, seen(2, "n1", began))}}
		if done, err := Sync(t.Context(), d, r, slurm.AdminComment, began, began.Add(time.Hour)); err != nil ||
			done.New < 1 {
			t.Fatalf("%+v %v", done, err)
		}
	})
}

// TestSyncManyJobs checks that a sync reads shorter pages where there are too many jobs for one query, which one user
// can submit.
func TestSyncManyJobs(t *testing.T) {
	d, runs := requeued()
	d.busy, d.most = true, 2*time.Hour
	r := fresh(t)
	done, err := Sync(t.Context(), d, r, slurm.AdminComment, began.Add(-time.Hour), began.Add(47*time.Hour))
	if err != nil || done.New != len(runs) || len(d.pages) > 60 {
		t.Errorf("%+v, %v after the pages %v", done, err, d.pages)
	}
	d.most = time.Second
	_, err = Sync(t.Context(), d, r, slurm.AdminComment, began, began.Add(time.Hour))
	if !errors.Is(err, slurm.ErrTooLong) {
		t.Errorf("%v", err)
	}
}
