package repo

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"caelum/internal/core/predict"
)

// TestKeysOfUsers checks two users with the same key. One user's runs must not change, displace or hide the other
// user's history, regardless of who ran the first job.
func TestKeysOfUsers(t *testing.T) {
	r := fresh(t)
	own := aRun()
	early := ofUser(1002, 8, 100)
	early.Start -= 1000
	add1(t, r, own, early)
	for i := range uint32(200) {
		n := ofUser(1002, 100+i, 100)
		n.Start += int64(i) + 1
		add1(t, r, n)
	}
	if n, err := r.Prune(time.Unix(own.Start+1000, 0)); err != nil || n != 201-keepOfKey {
		t.Errorf("%d pruned, %v", n, err)
	}
	if h, err := r.ByKey(own.UID, own.Key); err != nil || !reflect.DeepEqual(h.Runs, []predict.Run{own}) {
		t.Errorf("%v, %+v", err, h.Runs)
	}
	scripts, err := r.Scripts()
	if err != nil || len(scripts) != 2 || scripts[0].UID != 1002 || scripts[0].PeakMiB != 100 ||
		scripts[1].UID != own.UID ||
		scripts[1].PeakMiB != own.PeakMiB {
		t.Errorf("%v, %+v", err, scripts)
	}
	if n, err := r.ForgetKeyOf(1002, own.Key, time.Unix(own.Start+1000, 0)); err != nil || n != keepOfKey ||
		len(job(t, r, own.Job)) != 1 {
		t.Errorf("%d forgotten, %v", n, err)
	}
}

// TestPruneShares prunes a repository with too many runs. Users with at most an equal share must keep all of theirs,
// and the others equally many, namely their newest ones.
func TestPruneShares(t *testing.T) {
	r := fresh(t)
	for uid, n := range map[uint32]int{1001: 3, 1002: 40, 1003: 7, 1004: 25} {
		for i := range n {
			run := ofUser(uid, uid*1000+uint32(i), 100)
			run.Key, run.Start = fmt.Sprintf("%016x", i), run.Start+int64(i)
			if uid == 1001 {
				run.Start -= 5000 // older than all other runs
			}
			add1(t, r, run)
		}
	}
	if n, err := r.prune(time.Unix(aRun().Start+100, 0), 1000, 30); err != nil || n != 45 {
		t.Errorf("%d runs removed, %v", n, err)
	}
	for uid, c := range map[uint32]struct{ all, left int }{1001: {3, 3}, 1002: {40, 10}, 1003: {7, 7}, 1004: {25, 10}} {
		for i := range c.all {
			if there := len(job(t, r, uid*1000+uint32(i))) == 1; there != (i >= c.all-c.left) {
				t.Errorf("the repository contains run %d of user %d: %v", i, uid, there)
			}
		}
	}
}

func TestScripts(t *testing.T) {
	r := fresh(t)
	old, last, other, unknown := aRun(), aRun(), aRun(), aRun()
	old.Start, old.PeakMiB, old.Name = old.Start-100, 9000, "before"
	last.Job = 8
	other.Job, other.Key, other.Start = 9, "1111111111111111", other.Start+5
	other.Samples, other.PeakMiB, other.Util = 0, 0, -1
	other.MedianMiB, other.HighMiB = 0, 0
	unknown.Job, unknown.Key = 10, ""
	add1(t, r, old, last, other, unknown)
	scripts, err := r.Scripts()
	if err != nil || len(scripts) != 2 {
		t.Fatalf("%v %+v", err, scripts)
	}
	if w := scripts[0]; w.Key != other.Key || w.Runs != 1 || w.PeakMiB != 0 {
		t.Errorf("first %+v", w)
	}
	if w := scripts[1]; w.Key != last.Key || w.Runs != 2 || w.PeakMiB != 9000 || w.Name != "train" ||
		w.Last != last.Start ||
		w.UID != 1001 ||
		w.Fingerprint != last.Fingerprint {
		t.Errorf("second %+v", w)
	}
}

// TestForget checks that a sync does not re-add forgotten runs, and that later runs are stored.
func TestForget(t *testing.T) {
	now := time.Unix(aRun().Start+100, 0)
	for name, c := range map[string]struct {
		forget func(*Repo) (int, error)
		gone   []uint32
	}{
		"key":        {func(r *Repo) (int, error) { return r.ForgetKey(aRun().Key, now) }, []uint32{1, 2}},
		"user's key": {func(r *Repo) (int, error) { return r.ForgetKeyOf(1001, aRun().Key, now) }, []uint32{1, 2}},
		"other key":  {func(r *Repo) (int, error) { return r.ForgetKeyOf(1002, aRun().Key, now) }, nil},
		"user":       {func(r *Repo) (int, error) { return r.ForgetUser(1001, now) }, []uint32{1, 2, 3}},
		"before":     {func(r *Repo) (int, error) { return r.ForgetBefore(time.Unix(aRun().Start, 0)) }, []uint32{1}},
	} {
		r := fresh(t)
		a, b, c3, d := aRun(), aRun(), aRun(), aRun()
		a.Job, a.Start = 1, a.Start-10
		b.Job = 2
		c3.Job, c3.Key = 3, "1111111111111111"
		d.Job, d.Key, d.UID = 4, "2222222222222222", 1002
		add1(t, r, a, b, c3, d)
		n, err := c.forget(r)
		if err != nil || n != len(c.gone) {
			t.Errorf("%s: %d forgotten, %v", name, n, err)
		}
		if n := add1(t, r, a, b, c3, d); n != 0 {
			t.Errorf("%s: a second Add stored %d forgotten runs", name, n)
		}
		for id := uint32(1); id <= 4; id++ {
			if got := len(job(t, r, id)) == 0; got != slices.Contains(c.gone, id) {
				t.Errorf("%s: the runs of job %d are removed: %v", name, id, got)
			}
		}
		later := a
		later.Start = now.Unix()
		if n := add1(t, r, later); n != 1 {
			t.Errorf("%s: Add did not store a later run", name)
		}
	}
}

func TestPrune(t *testing.T) {
	r := fresh(t)
	start := aRun().Start
	var runs []predict.Run
	for i := range 20 {
		n := aRun()
		n.Job, n.Start, n.Key = uint32(i+1), start+int64(i), fmt.Sprintf("%016x", i%2)
		runs = append(runs, n)
	}
	ancient := aRun()
	ancient.Job, ancient.Start = 99, start-int64(keepFor/time.Second)
	add1(t, r, append(runs, ancient)...)

	// If the clock is set to 1970 or a century ahead, Prune must not remove more runs than with a correct clock.
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(start+3e9, 0)} {
		if n, err := r.prune(now, 10, 20); err != nil || n > 1 || len(job(t, r, 1)) != 1 {
			t.Errorf("%d runs removed, %v", n, err)
		}
	}
	if len(job(t, r, 99)) != 0 {
		t.Error("Prune did not remove the old run")
	}
	if n, err := r.prune(time.Unix(start+20, 0), 8, 20); err != nil || n != 4 || len(job(t, r, 4)) != 0 ||
		len(job(t, r, 5)) != 1 {
		t.Errorf("limit per key: %d runs removed, %v", n, err)
	}
	if n, err := r.prune(time.Unix(start+20, 0), 8, 5); err != nil || n != 11 || len(job(t, r, 15)) != 0 ||
		len(job(t, r, 16)) != 1 {
		t.Errorf("limit on all runs: %d runs removed, %v", n, err)
	}
}
