package main

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/controller/learn"
	"caelum/internal/core/predict"
)

// TestPredictNamed tests the output for a job whose profile was named by the user. The output must contain the profile,
// or "unknown" if only slurmdbd still has a record of the job.
func TestPredictNamed(t *testing.T) {
	for _, c := range []struct {
		job  namedJob
		want string
	}{
		{namedJob{named: true, requested: "2g.10gb"}, "named its profile (2g.10gb), which Caelum does not change"},
		{namedJob{named: true}, "the job named its profile (unknown), "},
		{namedJob{requested: "2g.10gb"}, ""},
	} {
		var p predicted
		p.setRequest(c.job, learn.Prediction{}, learn.Table{})
		var b strings.Builder
		if err := printPrediction(&b, p); err != nil || strings.Contains(b.String(), "named") != (c.want != "") ||
			!strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: the output does not match %q (%v):\n%s", c.job, c.want, err, b.String())
		}
	}
}

// TestPredictOwn tests the output for a job to which an administrator's line applies. It must not name another profile,
// and must not call a job that named its profile the job that gets the line's profile.
func TestPredictOwn(t *testing.T) {
	for _, named := range []string{"", "2g.10gb"} {
		var b strings.Builder
		err := printPrediction(&b, predicted{Own: "4g.20gb", Default: "7g.40gb", Named: named})
		if err != nil || strings.Contains(b.String(), "7g.40gb") || strings.Contains(b.String(), "this job") ||
			!strings.Contains(b.String(), "line in the decision table selects 4g.20gb, ") {
			t.Errorf("named profile %q: (%v)\n%s", named, err, b.String())
		}
	}
	var b strings.Builder
	err := printPrediction(&b, predicted{Default: "7g.40gb", Named: "2g.10gb"})
	if want := "so a job that names no profile gets the default profile (7g.40gb)"; err != nil ||
		!strings.Contains(b.String(), want) {
		t.Errorf("the output does not contain %q (%v):\n%s", want, err, b.String())
	}
}

// TestTimeLimit tests the forms of --time. Like Slurm, timeLimit must round seconds up to minutes.
func TestTimeLimit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "90": 90 * time.Minute, "30:00": 30 * time.Minute, "00:30": time.Minute,
		"1:00:00": time.Hour, "2-01:00:00": 49 * time.Hour, "UNLIMITED": 0,
	} {
		if got, err := timeLimit(text); err != nil || got != want {
			t.Errorf("timeLimit(%q) returned %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1", "1h", "1-12", "1-12:30", "16777216", "9e9", "1-1-1:00:00", "1:2:3:4"} {
		if got, err := timeLimit(text); err == nil {
			t.Errorf("timeLimit(%q) returned %v, want an error", text, got)
		}
	}
}

// TestInTimeWithoutTable tests that, with --board and without a decision table, a time limit selects a larger profile.
func TestInTimeWithoutTable(t *testing.T) {
	b, err := modelNamed("a100-40")
	if err != nil {
		t.Fatal(err)
	}
	p := learn.Prediction{
		Choice:   learn.Choice{Profile: "1g.5gb", Model: b, Seconds: 3600, High: 4500},
		Need:     predict.Need{Ended: true},
		Complete: true,
	}
	if got := (learn.Table{}).InTime(p, 44*time.Minute); got != "3g.20gb" {
		t.Errorf("InTime returned %s, want 3g.20gb", got)
	}
}
