package learn

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"caelum/internal/controller/repo"
	"caelum/internal/slurm"
)

// TestLoopOnce checks that runs in slurmdbd produce lines in the decision table, and that these lines remain while
// slurmdbd is unreachable. If the repository is damaged, the loop must log this, set it aside, and fill a new one.
func TestLoopOnce(t *testing.T) {
	d := &dbd{names: map[uint64]string{}}
	now := time.Now().Truncate(time.Second).Add(-24 * time.Hour)
	for i := range 10 {
		at := now.Add(time.Duration(i) * time.Hour)
		n := seen(uint32(i+1), "n1", at)
		d.records = append(d.records, record(uint64(i+1), uint32(i+1), at, []string{"n1"}, n))
	}
	log, logged := test.NewNullLogger()
	l := Loop{
		DBD:   d,
		Repo:  filepath.Join(t.TempDir(), "repo.db"),
		Table: begin(t, "caelum-decisions 1 1\n"+own),
		Field: slurm.AdminComment,
		Site:  memoryOnly,
		Log:   logrus.NewEntry(log),
	}
	if err := l.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "user 1001:" + work + " 1g.10gb\n"
	if got := learned(t, l.Table); got != want {
		t.Errorf("%s", got)
	}
	table, _ := os.Stat(l.Table)

	if err := os.WriteFile(l.Repo, []byte(strings.Repeat("junk", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	logged.Reset()
	if err := l.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := logged.Entries; len(e) != 2 || e[0].Level != logrus.ErrorLevel ||
		!strings.Contains(e[0].Message, "set aside") ||
		e[1].Data["new"] != 10 {
		t.Errorf("%+v", e)
	}
	if now, err := os.Stat(l.Table); err != nil || !os.SameFile(table, now) {
		t.Errorf("Write wrote an unchanged table: %v", err)
	}

	d.err = slurm.ErrNoAccounting
	if err := l.once(t.Context()); err == nil || learned(t, l.Table) != want {
		t.Errorf("%v\n%s", err, learned(t, l.Table))
	}
	if r, err := repo.Open(l.Repo, func(text string) { t.Error(text) }); err != nil {
		t.Error(err)
	} else {
		defer r.Close()
		if h, err := r.ByKey(1001, key); err != nil || len(h.Runs) != 10 {
			t.Errorf("%d runs, %v", len(h.Runs), err)
		}
	}
}

// TestUnread checks that Write does not remove any learned lines from the table while the repository is new or its
// first sync is incomplete.
func TestUnread(t *testing.T) {
	d := &dbd{names: map[uint64]string{}}
	at := time.Now().Truncate(time.Second).Add(-24 * time.Hour)
	for i := range 10 {
		began := at.Add(time.Duration(i) * time.Hour)
		d.records = append(
			d.records,
			record(uint64(i+1), uint32(i+1), began, []string{"n1"}, seen(uint32(i+1), "n1", began)),
		)
	}
	log, _ := test.NewNullLogger()
	l := Loop{
		DBD:   d,
		Repo:  filepath.Join(t.TempDir(), "repo.db"),
		Table: begin(t, "caelum-decisions 1 1\n"+own),
		Field: slurm.AdminComment,
		Site:  memoryOnly,
		Log:   logrus.NewEntry(log),
	}
	if err := l.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := learned(t, l.Table)
	if want == "" {
		t.Fatal("the table contains no learned lines")
	}
	if err := os.WriteFile(l.Repo, []byte(strings.Repeat("junk", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.err = slurm.ErrNoAccounting
	for range 2 { // the repository is damaged in the first pass, and new in the second
		if err := l.once(t.Context()); !errors.Is(err, errUnread) || learned(t, l.Table) != want {
			t.Errorf("%v\n%s", err, learned(t, l.Table))
		}
	}
	r, err := repo.Open(l.Repo, func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.SetNote(noteSynced, "1"); err != nil { // the first page was read
		t.Fatal(err)
	}
	if _, err := Write(l.Table, r, l.Site); !errors.Is(err, errUnread) {
		t.Errorf("%v", err)
	}
	d.err = nil
	if err := l.once(t.Context()); err != nil || learned(t, l.Table) != want {
		t.Errorf("%v\n%s", err, learned(t, l.Table))
	}
}

// TestLoopLogsOnce checks that the loop logs only one warning while failures persist, and that it ends when its context
// is canceled.
func TestLoopLogsOnce(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	logged := test.NewLocal(log)
	ctx, cancel := context.WithCancel(t.Context())
	d := &failing{cancel: cancel}
	l := Loop{
		DBD:   d,
		Repo:  filepath.Join(t.TempDir(), "repo.db"),
		Table: "/none",
		Field: slurm.AdminComment,
		Log:   logrus.NewEntry(log),
		Every: time.Nanosecond,
	}
	l.Run(ctx)
	if e := logged.AllEntries(); len(e) != 1 || e[0].Level != logrus.WarnLevel || d.asked < 3 {
		t.Errorf("%d queries: %+v", d.asked, e)
	}
}

// failing emulates an unreachable slurmdbd, and cancels the loop's context at the third query.
type failing struct {
	dbd
	asked  int
	cancel func()
}

func (d *failing) Records(context.Context, slurm.AccountingField, time.Time, time.Time) ([]slurm.Record, error) {
	if d.asked++; d.asked == 3 {
		d.cancel()
	}
	return nil, slurm.ErrNoAccounting
}
