package learn

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/repo"
)

// TestMeasured checks that profile-job's choice determines only the line of its key, and that it has no effect once a
// later run of this key has run out of memory.
func TestMeasured(t *testing.T) {
	path := begin(t, "caelum-decisions 1 1\n"+own)
	r := fresh(t)
	add(t, r, ten(key, work, 1001, 5000, began)...)
	write := func(what, want string, chosen int) {
		t.Helper()
		done, err := Write(path, r, memoryOnly)
		if err != nil || done.Measured != chosen {
			t.Fatalf("%s: %+v, %v", what, done, err)
		}
		if _, got, _ := strings.Cut(read(t, path), marker); got != want {
			t.Errorf("%s:\n%swant\n%s", what, got, want)
		}
		comparePredictions(t, what, r, path, memoryOnly)
	}
	const user = "user 1001:" + work + " 1g.10gb 2642-2985 89\n"
	const line = user + "key 1001:" + key + " 3g.20gb 960-1084 89 # profile-job, job 7\n"
	write("without a choice", user, 0)

	job := repo.JobKeys{Key: key, Fingerprint: work, UID: 1001}
	at := began.Add(time.Hour)
	set := func(m Measured) {
		t.Helper()
		if err := SetMeasured(r, job, m); err != nil {
			t.Fatal(err)
		}
	}
	set(Measured{Profile: "9g.90gb", Job: 7, At: at.Unix()})
	write("a profile that the table does not contain", user, 0)
	set(Measured{Profile: "3g.20gb", Batch: 8, Job: 7, At: at.Unix()})
	write("a choice", line, 1)

	predicted := func(job repo.JobKeys) (Prediction, error) {
		table, err := ReadTable(path)
		if err != nil {
			t.Fatal(err)
		}
		return table.Predict(r, job, memoryOnly)
	}
	add(t, r, killed(key, 50, "3g.20gb", 19000, at.Add(-time.Minute)))
	add(t, r, killed(key, 51, "3g.20gb", 500, at.Add(time.Minute)))
	if p, err := predicted(job); err != nil || p.Measured == nil || p.Profile != "3g.20gb" {
		t.Errorf("after an earlier kill and another failure: %+v, %v", p, err)
	}
	add(t, r, killed(key, 52, "3g.20gb", 19000, at.Add(2*time.Minute)))
	if p, err := predicted(job); err != nil || p.Measured != nil || p.Profile != "7g.40gb" {
		t.Errorf("after a kill: %+v, %v", p, err)
	}
	set(Measured{Profile: "3g.20gb", Job: 60, At: at.Add(time.Hour).Unix()})
	if p, err := predicted(job); err != nil || p.Measured == nil {
		t.Errorf("a new choice: %+v, %v", p, err)
	}
	other := repo.JobKeys{Key: otherKey, Fingerprint: work, UID: 1001}
	if p, err := predicted(other); err != nil || p.Measured != nil {
		t.Errorf("another key: %+v, %v", p, err)
	}
}

// TestMeasuredForgotten checks that forgetting the runs of the key or of its user also removes the choice.
func TestMeasuredForgotten(t *testing.T) {
	r, job := fresh(t), repo.JobKeys{Key: key, Fingerprint: work, UID: 1001}
	if err := SetMeasured(r, job, Measured{Profile: "3g.20gb"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ForgetKeyOf(1001, otherKey, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ForgetUser(100, time.Now()); err != nil {
		t.Fatal(err)
	}
	if m, err := measured(r, job); err != nil || m == nil {
		t.Errorf("after forgetting another key and another user: %v, %v", m, err)
	}
	for _, forget := range []func() (int, error){
		func() (int, error) { return r.ForgetKey(key, time.Now()) },
		func() (int, error) { return r.ForgetKeyOf(1001, key, time.Now()) },
		func() (int, error) { return r.ForgetUser(1001, time.Now()) },
	} {
		if err := SetMeasured(r, job, Measured{Profile: "3g.20gb"}); err != nil {
			t.Fatal(err)
		}
		if _, err := forget(); err != nil {
			t.Fatal(err)
		}
		if m, err := measured(r, job); err != nil || m != nil {
			t.Errorf("after forgetting the key or its user: %+v, %v", m, err)
		}
	}
}
