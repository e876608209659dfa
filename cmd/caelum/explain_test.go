package main

import (
	"strings"
	"testing"

	"caelum/internal/plan"
)

// TestExplainedPlace tests the first line of the output. If the job waits for slices, the line must contain the
// position of the job in the queue.
func TestExplainedPlace(t *testing.T) {
	for want, e := range map[string]plan.Explanation{
		"job 7, PENDING, is number 2 of 3 jobs that wait for slices": {Place: 2, Of: 3},
		"job 7, PENDING, is the only job that waits for slices":      {Place: 1, Of: 1},
		"job 7, PENDING": {Of: 1},
	} {
		e.Job, e.State = 7, "PENDING"
		var b strings.Builder
		if err := printExplanation(&b, e); err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(b.String(), "\n"); first != want {
			t.Errorf("the first line is %q, want %q", first, want)
		}
	}
}

// TestExplainedLimit tests the output for a job whose profile is larger because of a time limit.
func TestExplainedLimit(t *testing.T) {
	for seconds, want := range map[int]string{
		3600:  "3g.20gb is larger than 1g.5gb because of the time limit of 01:00:00: ",
		90061: "the time limit of 1-01:01:01: ",
		0:     "the time limit of the partition: ",
	} {
		e := plan.Explanation{Job: 7, State: "PENDING", Sized: "3g.20gb", InsteadOf: "1g.5gb", TimeLimit: seconds}
		var b strings.Builder
		if err := printExplanation(&b, e); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("time limit of %d s: the output does not contain %q (%v):\n%s", seconds, want, err, b.String())
		}
	}
}

// TestExplainedFull tests the output for a job that gets full GPUs.
func TestExplainedFull(t *testing.T) {
	for sized, want := range map[string]string{
		"full":   "the job gets full GPUs, ",
		"1g.5gb": "so Caelum chose 1g.5gb. ",
	} {
		var b strings.Builder
		if err := printExplanation(&b, plan.Explanation{Job: 7, State: "RUNNING", Sized: sized}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: the output does not contain %q:\n%s", sized, want, b.String())
		}
	}
}
