package main

import (
	"strings"
	"testing"

	"caelum/internal/core/plan"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
)

// TestExplainedPlace tests the first line of the output. If the job waits for slices, this line must show its position
// in the queue.
func TestExplainedPlace(t *testing.T) {
	for want, e := range map[string]plan.Explanation{
		"job 7, PENDING, is number 2 of 3 jobs waiting for slices": {Place: 2, Of: 3},
		"job 7, PENDING, is the only job waiting for slices":       {Place: 1, Of: 1},
		"job 7, PENDING": {Of: 1},
	} {
		e.Job, e.Ref, e.State = 7, "7", "PENDING"
		var b strings.Builder
		printExplanation(&b, e)
		if first, _, _ := strings.Cut(b.String(), "\n"); first != want {
			t.Errorf("the first line is %q, want %q", first, want)
		}
	}
}

// TestExplainedLimit tests the output for a job whose profile is larger because of a time limit.
func TestExplainedLimit(t *testing.T) {
	for seconds, want := range map[int]string{
		3600:  "Caelum chose 3g.20gb instead of 1g.5gb because of the time limit of 01:00:00, which",
		90061: "the time limit of 1-01:01:01, ",
		0:     "the time limit of the partition, ",
	} {
		e := plan.Explanation{Job: 7, State: "PENDING", Sized: "3g.20gb", InsteadOf: "1g.5gb", TimeLimit: seconds}
		var b strings.Builder
		if printExplanation(&b, e); !strings.Contains(b.String(), want) {
			t.Errorf("time limit of %d s: the output does not contain %q:\n%s", seconds, want, b.String())
		}
	}
}

// TestExplainedGrowths tests the output for a job that has grown twice. The output must not show the reasons for the
// profile at submission.
func TestExplainedGrowths(t *testing.T) {
	e := plan.Explanation{Job: 7, Ref: "7", State: "RUNNING", Sized: "3g.20gb", InsteadOf: "1g.5gb"}
	e.Grown = []predict.Growth{
		{Profile: "1g.5gb", Cause: predict.RanOutOfMemory, MiB: 4711},
		{Profile: "1g.10gb", Cause: predict.Foreseen, MiB: 15000},
	}
	var b strings.Builder
	printExplanation(&b, e)
	want := "job 7, RUNNING\n\n" +
		"the job failed on 1g.5gb, probably because it ran out of GPU memory: it used up to 4711 MiB. " +
		"An agent requeued the job with 1g.10gb\n" +
		"the job would have run out of GPU memory on 1g.10gb: its forecast peak was 15000 MiB. " +
		"An agent requeued the job with 3g.20gb\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestExplainedSize tests the reason for the size of a job.
func TestExplainedSize(t *testing.T) {
	for _, c := range []struct{ sized, by, want string }{
		{"full", "full", "the job gets full GPUs, "},
		{"full", "off", "the job gets full GPUs, "},
		{"full", "key", "Caelum chose full for the job: its user's earlier runs of this job determine the size"},
		{"1g.5gb", "", "Caelum chose 1g.5gb for the job: according to its options, its earlier runs (see `caelum"},
		{"1g.5gb", "args", "its arguments and its user's earlier runs determine the size (see `caelum predict 7`)\n"},
		{"1g.5gb", "key", "its user's earlier runs of this job determine the size (see `caelum predict 7`)\n"},
		{"1g.5gb", "default", "no earlier runs were known when it was submitted, so it gets the default profile\n"},
		{"1g.5gb", "memory", "it is the smallest profile for --mig-mem\n"},
	} {
		var b strings.Builder
		e := plan.Explanation{Job: 7, Ref: "7", State: "RUNNING", Sized: c.sized, By: c.by}
		printExplanation(&b, e)
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: the output does not contain %q:\n%s", c.sized, c.want, b.String())
		}
	}
}

// TestExplainedUnconverted tests the lines about GPU nodes of the job's partition that Caelum does not manage.
func TestExplainedUnconverted(t *testing.T) {
	gres := func(text string) slurm.GRESList {
		list, err := slurm.ParseGRES(text)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	nodes := []slurm.Node{
		{Name: "n1", Partitions: []string{"gpu"}, Gres: gres("gpu:a100:7,mig:1g.5gb:0,mig:closed:28")},
		{Name: "n2", Partitions: []string{"gpu"}, Gres: gres("gpu:a100:2,mig:1g.5gb:2")},
		{Name: "n3", Partitions: []string{"gpu"}, Gres: gres("gpu:a100:2")},
		{Name: "n4", Partitions: []string{"other"}, Gres: gres("gpu:a100:2")},
		{Name: "c1", Partitions: []string{"gpu"}},
	}
	waiting := []slurm.Waiting{{Job: &slurm.Job{ID: 7, Partition: "gpu", PerNode: gres("gpu:1,mig:1g.5gb:1")}}}
	got := strings.Join(notConverted(nodes, waiting, 7), "\n")
	want := "n2 is not converted to Caelum: there, the job would get a whole GPU\n" +
		"n3 is not converted to Caelum, and has no gres/mig counts: the job cannot start there " +
		"(`caelum doctor --controller`)"
	if got != want || notConverted(nodes, waiting, 8) != nil {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
