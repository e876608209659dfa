package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/lab/growtrace"
)

// growthNodes is the number of nodes. The trace's GPUs are distributed evenly among them.
const growthNodes = 2

// growthAttempts is the maximum number of times that a user submits a job that keeps running out of memory. As in
// `contrib/lab/learn grow`, the last submission requests the whole GPU.
const growthAttempts = 5

// growthConfig is the configuration of all agents. With sizing: tightest, no job is given a larger slice unless it
// needs the memory. Because the jobs are much shorter than real ones, the agents take four samples per second.
const growthConfig = "poll_interval: 1m\nwake_port: 6873\nlearn: false\n" +
	"log_format: json\nsizing: tightest\nsample_interval: 250ms\n"

// growthConf makes slurmctld release requeued jobs after growtrace.RequeueDelay, and process the queue every 2 s.
const growthConf = "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min," +
	"bf_interval=2,sched_interval=2"

// benchGrowth runs the same trace with each growth mode, on one cluster per mode. The clusters run at the same time.
// Unknown jobs start on 1g.5gb. In all modes, Caelum learns from each run, so a resubmitted job is given the learned
// profile.
func benchGrowth(ctx context.Context, jobs int, seed uint64, only string) error {
	fmt.Printf("\nOne trace of %d jobs whose memory grows, seed %d, on %d nodes of %d A100-40GB GPUs:\n\n", jobs, seed,
		growthNodes, growtrace.GPUs/growthNodes)
	modes := []string{"off", "oom", "forecast"}
	if only != "" {
		modes = []string{only}
	}
	results, errs := make([]growtrace.Result, len(modes)), make([]error, len(modes))
	var all sync.WaitGroup
	for k, mode := range modes {
		all.Go(func() {
			r := growthRun{mode: mode, ended: map[string]string{}}
			for nth, j := range growtrace.Trace(seed, jobs) {
				r.jobs = append(r.jobs, &growthJob{Job: j, nth: nth, next: seconds(j.Submit)})
			}
			if results[k], errs[k] = r.run(ctx); errs[k] != nil {
				errs[k] = fmt.Errorf("%s: %w", mode, errs[k])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return growtrace.Print(os.Stdout, results)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// growthRun is a run of the trace with one growth mode.
type growthRun struct {
	*cluster.Cluster
	mode  string
	jobs  []*growthJob
	began time.Time
	ended map[string]string // the exit codes of all ended jobs, by id
	late  time.Duration     // the longest delay of any submission
}

// growthJob is one of the trace's jobs. Its user submits it at the time given by next, and again if it runs out of
// memory.
type growthJob struct {
	growtrace.Job
	nth   int
	next  time.Duration // since the start of the trace; -1 if no submission is due
	ids   []string      // one id for each submission
	first time.Time     // the first submission
}

func (r *growthRun) run(ctx context.Context) (result growtrace.Result, err error) {
	c, down, err := up(ctx, growthConfig, cluster.Options{
		Nodes: growthNodes, GPUs: growtrace.GPUs / growthNodes,
		Conf: []string{growthConf, fmt.Sprint("AuthInfo=cred_expire=", growtrace.RequeueDelay-1)},
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, down()) }()
	r.Cluster = c
	if err := r.must(ctx, "sed", "-i", "-e", "1s/.*/caelum-decisions 1 99/", "-e", "s/^default .*/default 1g.5gb/",
		"-e", "$a grow "+r.mode, "/etc/caelum/decisions"); err != nil {
		return result, err
	}
	learning, stop := context.WithCancel(ctx)
	var learned error
	var learner sync.WaitGroup
	learner.Go(func() { learned = r.learn(learning) })
	err = r.serve(ctx)
	stop()
	learner.Wait()
	if err = errors.Join(err, learned); err != nil {
		return result, err
	}
	return r.result()
}

// must runs a command as root on the login node.
func (r *growthRun) must(ctx context.Context, args ...string) error {
	if _, stderr, err := r.Exec(ctx, "root", args...); err != nil {
		return fmt.Errorf("%q: %w: %s", args, err, stderr)
	}
	return nil
}

// learn updates the decision table every ten seconds until ctx is done. At each update, the agents have already
// recorded the summaries of all runs that ended more than a few seconds earlier, so a resubmitted job is given the
// learned profile.
func (r *growthRun) learn(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, command := range []string{"sync", "decisions"} {
			if err := r.must(ctx, "caelum", "repo", command); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return nil
}

// serve submits all jobs, and resubmits those that ran out of memory, until all have ended.
func (r *growthRun) serve(ctx context.Context) error {
	for r.began = time.Now(); ; time.Sleep(time.Second) {
		if err := r.addEnded(ctx); err != nil {
			return err
		}
		waiting := false
		for _, j := range r.jobs {
			if n := len(j.ids); n > 0 && j.next < 0 {
				code, over := r.ended[j.ids[n-1]]
				switch {
				case over && code == ranOut && n < growthAttempts:
					j.next = time.Since(r.began) + growtrace.Notice*time.Second
				case over && (code == completed) == (j.Until == 1) && (code == broken) == (j.Until < 1):
					continue
				case over:
					return fmt.Errorf("job %s ended with exit code %s", j.ids[n-1], code)
				}
			}
			waiting = true
			if j.next >= 0 && time.Since(r.began) >= j.next {
				r.late = max(r.late, time.Since(r.began)-j.next)
				if err := r.submit(ctx, j); err != nil {
					return err
				}
			}
		}
		if !waiting {
			return nil
		}
	}
}

// The exit codes of a job that completes, runs out of memory, or fails for another reason.
const completed, ranOut, broken = "0:0", "1:0", "3:0"

// submit submits a job. Its script differs from the scripts of all other jobs, so it is unknown to Caelum.
func (r *growthRun) submit(ctx context.Context, j *growthJob) error {
	script := fmt.Sprintf("#!/bin/bash\n# job %d\ncuda-process --util 0 --curve %s || exit\n", j.nth, j.Points())
	if j.Until < 1 {
		script += "exit 3\n"
	}
	args := []string{"sbatch", "--parsable", "--gres=gpu:1", "--open-mode=append", "--requeue",
		fmt.Sprint("--job-name=job", j.nth), fmt.Sprintf("--time=%.0f", j.Limit/60)}
	if len(j.ids) == growthAttempts-1 {
		args = append(args, "--mig=off")
	}
	cmd := r.Command(ctx, "", "user1", args...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	if j.ids, j.next = append(j.ids, strings.TrimSpace(string(out))), -1; len(j.ids) == 1 {
		j.first = time.Now()
	}
	return nil
}

// addEnded adds the exit codes of the jobs that slurmctld reports as ended. slurmctld reports an ended job only for
// MinJobAge. A failed job that an agent requeues is never among them, because it is completing until its epilog has
// ended.
func (r *growthRun) addEnded(ctx context.Context) error {
	out, stderr, err := r.Exec(ctx, "root", "scontrol", "-o", "show", "jobs")
	if err != nil {
		return fmt.Errorf("scontrol: %w: %s", err, stderr)
	}
	for line := range strings.Lines(out) {
		fields := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(word, "=")
			if _, known := fields[name]; !known {
				fields[name] = value
			}
		}
		switch state := fields["JobState"]; state {
		case "COMPLETED", "FAILED":
			r.ended[fields["JobId"]] = fields["ExitCode"]
		case "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL":
			return fmt.Errorf("job %s is %s", fields["JobId"], state)
		}
	}
	return nil
}
