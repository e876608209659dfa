package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// report prints the results of one scenario. The times are from slurmctld's log, which has a resolution of one
// millisecond.
func (s scenarios) report(ctx context.Context, scenario string, c *cluster.Cluster, work []*submission) error {
	log, err := c.Log("slurmctld")
	if err != nil {
		return err
	}
	jobs, err := jobTimes(log)
	if err != nil {
		return err
	}
	var o outcome
	for _, j := range work {
		t := jobs[j.id]
		if t == nil || t.submit.IsZero() || t.start.IsZero() || t.end.IsZero() {
			return fmt.Errorf("slurmctld's log lacks the start or the end of job %s", j.id)
		}
		o.add(j, *t)
	}
	if s.multi > 0 {
		s.reportMulti(scenario, work, jobs)
		if scenario == "caelum" {
			return s.reportSwitches(ctx, c)
		}
		return nil
	}
	slices.Sort(o.waits)
	sum := 0.0
	for _, x := range o.waits {
		sum += x
	}
	n := len(o.waits)
	makespan := o.last.Sub(o.first).Seconds()
	fmt.Printf(
		"  %-8s %8.1f s %8.1f s %8.1f s %8.1f s %6.0f s, %.0f%%   (longest of a whole GPU %.1f s)\n",
		scenario, sum/float64(n), median(o.waits), o.waits[n*95/100], o.waits[n-1],
		makespan, 100*o.needed/(makespan*float64(s.nodes*s.gpus)), o.large,
	)
	if scenario == "caelum" {
		fmt.Printf(
			"  %-8s of %d jobs that had an offered profile or started within %.1f s, %d had an offered profile: "+
				"%.1f%%\n",
			"", o.prompt, atOnce, o.found, 100*float64(o.found)/float64(o.prompt),
		)
	}
	return s.cost(ctx, scenario, c)
}

// times holds the times of a job according to slurmctld's log.
type times struct{ submit, start, end time.Time }

var logged = regexp.MustCompile(
	`(?m)^\[([^\]]+)\] .*?` +
		`(_slurm_rpc_submit_batch_job:|sched: Allocate|_start_job: (?:HETJOB: )?Started|_job_complete:) ` +
		`JobId=(\d+)\b.*$`,
)

// jobTimes returns the times of all jobs according to slurmctld's log, by job id.
func jobTimes(log string) (map[string]*times, error) {
	jobs := map[string]*times{}
	for _, m := range logged.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000", m[1])
		if err != nil {
			return nil, err
		}
		t := jobs[m[3]]
		if t == nil {
			t = &times{}
			jobs[m[3]] = t
		}
		switch m[2] {
		case "_slurm_rpc_submit_batch_job:":
			t.submit = at
		case "_job_complete:":
			t.end = at
		default:
			t.start = at
		}
	}
	return jobs, nil
}

// outcome holds the results of all jobs in a scenario.
type outcome struct {
	waits       []float64 // seconds from submission to start
	large       float64   // the longest wait of a job that needs a whole GPU
	first, last time.Time // the first submission and the last end
	needed      float64   // GPU-seconds
	prompt      int       // number of jobs whose profile was offered or that started within atOnce
	found       int       // number of jobs whose profile was offered
}

func (o *outcome) add(j *submission, t times) {
	wait := t.start.Sub(t.submit).Seconds()
	o.waits = append(o.waits, wait)
	o.needed += j.units * j.seconds
	if o.first.IsZero() || t.submit.Before(o.first) {
		o.first = t.submit
	}
	if t.end.After(o.last) {
		o.last = t.end
	}
	if j.units == 1 {
		o.large = max(o.large, wait)
	}
	if j.found {
		o.found++
	}
	if j.found || wait < atOnce {
		o.prompt++
	}
}

// atOnce is the maximum expected wait, in seconds, of a job whose slice is free when the job is submitted. It allows
// for one publication by an agent and two scheduling cycles of slurmctld.
const atOnce = 2.5

// cost prints how much of slurmctld's time the scenario took, according to sdiag.
func (s scenarios) cost(ctx context.Context, scenario string, c *cluster.Cluster) error {
	out, _, err := c.Exec(ctx, "root", "sdiag")
	if err != nil {
		return err
	}
	line := func(after, name string) string {
		_, rest, _ := strings.Cut(out, after)
		_, rest, _ = strings.Cut(rest, name+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(value)
	}
	fmt.Printf(
		"  %-8s mean main cycle %s us; mean backfill cycle %s us, depth %s\n",
		"",
		line("Main schedule", "Mean cycle"),
		line("Backfilling stats", "Mean cycle"),
		line("Backfilling stats", "Depth Mean"),
	)
	return nil
}
