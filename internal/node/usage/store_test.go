package usage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/usage/usagetest"
)

// TestTooManyRunsWait checks that at most maxEnded runs wait in memory while the repository cannot be read. The
// Monitor must keep the newest ones, and store them once the repository can be read again.
func TestTooManyRunsWait(t *testing.T) {
	var log strings.Builder
	logger := logrus.New()
	logger.SetOutput(&log)
	repo := usagetest.NewRepository()
	repo.Unreadable = errors.New("not yet")
	now := time.Unix(1795339300, 0)
	m := NewMonitor(Options{
		Node: "n1", Log: logrus.NewEntry(logger),
		Now: func() time.Time { return now }, Clock: func() time.Duration { return time.Hour },
	})
	m.SetRepository(repo, usagetest.NewAccounting())
	const extra = 5
	slice := Slice{GPU: 0, Instance: gpu.Instance{UUID: "MIG-1", Profile: "1g.5gb"}, MemoryMiB: 4864}
	for k := range uint32(maxEnded + extra) {
		m.Begin(api.Lease{Job: k + 1, Since: now.Unix()}, "a100", []Slice{slice})
		m.End(k+1, false)
	}
	m.Flush(false)
	if n := strings.Count(log.String(), "the usage of this job is not stored"); n != extra {
		t.Errorf("the Monitor discarded %d runs, want %d", n, extra)
	}
	if len(m.ended) != maxEnded || m.ended[0].Job != extra+1 {
		t.Errorf("%d runs wait, the first of job %d", len(m.ended), m.ended[0].Job)
	}
	m.ended = m.ended[maxEnded-3:]
	repo.Unreadable = nil
	m.Flush(false)
	if len(m.ended) != 0 || len(repo.Kept()) != 3 {
		t.Errorf("%d runs wait, and the repository contains %d runs", len(m.ended), len(repo.Kept()))
	}
}

// TestPruned checks that the repository is pruned once a day, but not while slurmdbd does not answer.
func TestPruned(t *testing.T) {
	repo := usagetest.NewRepository()
	now := time.Unix(1795339300, 0)
	m := NewMonitor(Options{Log: logrus.NewEntry(logrus.New()), Now: func() time.Time { return now }})
	m.SetRepository(repo, usagetest.NewAccounting())
	for k, c := range []struct {
		later  time.Duration
		failed bool
		want   int
	}{{0, true, 0}, {time.Minute, false, 1}, {time.Hour, false, 1}, {pruneEvery, false, 2}} {
		now = now.Add(c.later)
		m.dbdFailed.Store(c.failed)
		if m.prune(); repo.Prunes != c.want {
			t.Errorf("step %d: pruned %d times, want %d", k, repo.Prunes, c.want)
		}
	}
}
