package main

import (
	"strings"
	"testing"
	"time"

	"caelum/internal/cli/overview"
	"caelum/internal/slurm"
)

// TestOneNode checks the jobs of a node. Jobs without GPUs are not shown, and a user's name cannot control the
// terminal.
func TestOneNode(t *testing.T) {
	gres, err := slurm.ParseGRES("gpu:a100:2,mig:1g.5gb:2")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 24, 10, 0, 0, 0, time.Local)
	jobs := newNodeJobs([]slurm.Job{
		{ID: 7, User: "a\x1b[2J", State: "RUNNING", Start: start, PerNode: gres},
		{ID: 8, User: "b", State: "CONFIGURING", PerNode: gres[:1]},
		{ID: 9, User: "c", State: "RUNNING"},
	})
	n := overview.Node{Name: "n1", State: "MIXED", Since: start.Unix(), GPUs: []overview.GPU{{Index: 3}}}
	var out strings.Builder
	if err := printLines(&out, oneNode(nodeDetail{n, jobs}, start.Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	const want = "node n1, MIXED, offers last changed 1m0s ago\n\n" +
		"GPU 3  not managed; run `caelum status` on the node to see the reason\n\non offer: nothing\n\n" +
		"JOB  USER   STATE        SLICES     STARTED\n" +
		"7    a?[2J  RUNNING      1g.5gb x2  2026-11-24 10:00:00\n" +
		"8    b      CONFIGURING  2 GPUs     -\n"
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
