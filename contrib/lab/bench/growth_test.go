package main

import (
	"strings"
	"testing"
	"time"

	"caelum/contrib/lab/growtrace"
	"caelum/internal/core/mig"
)

// growthLog is an agent's log: job 7 is requeued once, before a failure, and job 8 fails and is resubmitted as job 9.
const growthLog = `not JSON
{"msg":"leased 1g.5gb at 4","time":"2026-11-27T10:00:00Z","job":7}
{"msg":"leased 1g.5gb at 5","time":"2026-11-27T10:00:00Z","job":8}
{"msg":"` + growthStopped + `","time":"2026-11-27T10:01:19Z","job":7}
{"msg":"released","time":"2026-11-27T10:01:20Z","job":7}
{"msg":"released","time":"2026-11-27T10:00:40Z","job":8}
{"msg":"leased 2g.10gb at 4","time":"2026-11-27T10:01:30Z","job":7}
{"msg":"leased 2g.10gb at 0","time":"2026-11-27T10:01:40Z","job":9}
{"msg":"released","time":"2026-11-27T10:03:10Z","job":7}
{"msg":"released","time":"2026-11-27T10:03:20Z","job":9}
`

// TestGrowthResults computes the results of two jobs, which need 6000 MiB, by hand.
func TestGrowthResults(t *testing.T) {
	leases := map[string][]growthLease{}
	if err := addLeases(leases, growthLog); err != nil {
		t.Fatal(err)
	}
	of, err := mig.ModelByName("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 27, 9, 59, 50, 0, time.UTC)
	one := growtrace.Job{
		Seconds: 100, PeakMiB: 6000, Until: 1, Curve: growtrace.Curve{Base: 0.5, Jump: 0.1, Rise: 1},
	}
	want := growtrace.Result{
		Jobs: 2, Turnaround: 200 + 210, Short: 2, ShortTurnaround: 200 + 210,
		Used: (80 + 2*100 + 40 + 2*100) / 8., Lost: (80 + 40) / 8., Failures: 1, Requeues: 1, Stopped: 1,
	}
	var got growtrace.Result
	for _, ids := range [][]string{{"7"}, {"8", "9"}} {
		j := growthJob{Job: one, ids: ids, first: start}
		if err := j.addTo(&got, leases, of); err != nil {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	one.PeakMiB = 4000 // the first run of 7 was large enough, and 8 failed although it was
	got = growtrace.Result{}
	if err := (&growthJob{Job: one, ids: []string{"7"}, first: start}).addTo(&got, leases, of); err != nil ||
		got.Needless != 1 || got.Stopped != 0 || got.Short != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for name, j := range map[string]growthJob{
		"a failure on a large enough slice": {Job: one, ids: []string{"8", "9"}},
		"no lease":                          {Job: one, ids: []string{"10"}},
	} {
		if err := j.addTo(&got, leases, of); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	unreleased, _, _ := strings.Cut(growthLog, `{"msg":"released","time":"2026-11-27T10:03:10Z"`)
	if err := addLeases(map[string][]growthLease{}, unreleased); err == nil {
		t.Error("unreleased slices: no error")
	}
}
