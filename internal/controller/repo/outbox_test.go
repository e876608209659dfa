package repo

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// TestOutbox follows a run from its open observation until its summary is in slurmdbd, across restarts of the agent.
func TestOutbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo.db")
	r := open(t, path)
	check(t, r.Observe(Observation{7, 0, []byte("begun")}))
	check(t, r.Observe(Observation{8, 1, []byte("other")}))
	check(t, r.Observe(Observation{7, 0, []byte("\x00more\xff")}))
	check(t, r.Close())
	r = open(t, path)
	o, err := r.Observations()
	if err != nil || len(o) != 2 || string(o[0].Text) != "\x00more\xff" || o[1].Job != 8 || o[1].Restart != 1 {
		t.Fatalf("%+v %v", o, err)
	}
	check(t, r.Dismiss(8, 1))

	end := time.Unix(1795342806, 0)
	n := aRun()
	check(t, r.Ended(n, end))
	check(t, r.Ended(n, end.Add(time.Hour))) // a second epilog of the same run
	if o, err := r.Observations(); err != nil || len(o) != 0 {
		t.Errorf("open observations after the end of the run: %v %v", o, err)
	}
	due, err := r.Due(end, 10)
	if err != nil || len(due) != 1 || !reflect.DeepEqual(due[0].Run, n) || !due[0].Since.Equal(end) || due[0].Written ||
		due[0].Tries != 0 {
		t.Fatalf("%+v %v", due, err)
	}
	check(t, r.Recorded(n))
	if len(job(t, r, 7)) != 1 {
		t.Error("Recorded removed the run from the repository")
	}
	nothingDue(t, r)
}

// TestPostpone checks that a postponed run becomes due at the given time, even if the clock has been set back.
func TestPostpone(t *testing.T) {
	r, n, end := fresh(t), aRun(), time.Unix(1795342806, 0)
	check(t, r.Ended(n, end))
	check(t, r.Postpone(n, end.Add(time.Minute), true))
	if due, err := r.Due(end, 10); err != nil || len(due) != 0 {
		t.Errorf("a postponed run is due: %+v %v", due, err)
	}
	if next, some, err := r.Next(); err != nil || !some || !next.Equal(end.Add(time.Minute)) {
		t.Errorf("next at %v %v %v", next, some, err)
	}
	for _, now := range []time.Time{end.Add(time.Minute), end.Add(-48 * time.Hour)} {
		if due, err := r.Due(now, 10); err != nil || len(due) != 1 || !due[0].Written || due[0].Tries != 1 {
			t.Errorf("at %v: %+v %v", now, due, err)
		}
	}
	check(t, r.Recorded(n))
	nothingDue(t, r)
}

// TestAgain puts runs back into the outbox. Only the given node's runs that ended in the given interval may return.
func TestAgain(t *testing.T) {
	r, n := fresh(t), aRun()
	end := time.Unix(n.Start, 0).Add(time.Duration(n.Seconds * float64(time.Second)))
	check(t, r.Ended(n, end))
	check(t, r.Recorded(n))
	other := n
	other.Node = "n99"
	_, err := r.Add(other)
	check(t, err)
	check(t, r.Again(n.Node, end.Add(time.Minute), end.Add(time.Hour), end))
	check(t, r.Again(n.Node, end.Add(-time.Hour), end.Add(-time.Minute), end))
	nothingDue(t, r)
	check(t, r.Again(n.Node, end.Add(-time.Minute), end.Add(time.Minute), end.Add(time.Hour)))
	if due, err := r.Due(end, 10); err != nil || len(due) != 0 {
		t.Errorf("due too early: %+v %v", due, err)
	}
	due, err := r.Due(end.Add(time.Hour), 10)
	if err != nil || len(due) != 1 || !reflect.DeepEqual(due[0].Run, n) || due[0].Tries != 0 {
		t.Errorf("%+v %v", due, err)
	}
	check(t, r.Postpone(n, end.Add(2*time.Hour), false))
	check(t, r.Again(n.Node, end.Add(-time.Minute), end.Add(time.Minute), end))
	if due, err := r.Due(end.Add(2*time.Hour), 10); err != nil || len(due) != 1 || due[0].Tries != 1 {
		t.Errorf("a run that is in the outbox changed: %+v %v", due, err)
	}
}

// TestForgottenIsNotWritten checks that ForgetKey removes a run from the outbox, and that a second call to Ended does
// not re-add it.
func TestForgottenIsNotWritten(t *testing.T) {
	r, n, end := fresh(t), aRun(), time.Unix(1795342806, 0)
	check(t, r.Ended(n, end))
	_, err := r.ForgetKey(n.Key, end)
	check(t, err)
	nothingDue(t, r)
	check(t, r.Ended(n, end))
	nothingDue(t, r)
}

// nothingDue checks that the outbox is empty.
func nothingDue(t *testing.T, r *Repo) {
	t.Helper()
	if w, err := r.Waiting(); err != nil || w != 0 {
		t.Errorf("the outbox contains %d runs, %v", w, err)
	}
	if _, some, err := r.Next(); err != nil || some {
		t.Errorf("Next returns a run, or the error %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNotes(t *testing.T) {
	r := fresh(t)
	if v, err := r.Note("synced"); err != nil || v != "" {
		t.Errorf("%q %v", v, err)
	}
	for _, want := range []string{"1", "2"} {
		if err := r.SetNote("synced", want); err != nil {
			t.Fatal(err)
		}
		if v, err := r.Note("synced"); err != nil || v != want {
			t.Errorf("%q %v", v, err)
		}
	}
}
