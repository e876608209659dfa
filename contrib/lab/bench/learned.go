package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// trainScript is the script of -learned, which runs for 20 s and names no size. With whole GPUs, MIG mode is on and
// there are no instances, so its last line is sleep.
const trainScript = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH --time=10\n#SBATCH --output=/dev/null\n"

// wholeWork and sliceWork are the last lines of trainScript. A job needs the smallest slice.
const (
	wholeWork = "sleep 20\n"
	sliceWork = "cuda-process --curve 0:500,2:1500,20:1500\n"
)

// plainSubmit is the job_submit.lua of the cluster with whole GPUs. It changes nothing.
const plainSubmit = "function slurm_job_submit() return slurm.SUCCESS end\n" +
	"function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"

// learnedWait is how long benchLearned waits for the learned line. The watcher learns once a minute.
const learnedWait = 3 * time.Minute

// benchLearned submits the same script once and, after a minute in which Caelum can learn from its run, as many times
// as jobs, on a cluster with whole GPUs and on a cluster with Caelum's default configuration, at the same time. Each
// has one A100. It prints the mean and the longest wait according to sacct, and the ratio of the means.
func benchLearned(ctx context.Context, jobs int) (err error) {
	names, waits := []string{"whole GPU", "Caelum"}, make([][]float64, 2)
	failures := make(chan error)
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plain := filepath.Join(dir, "job_submit.lua")
	if err := os.WriteFile(plain, []byte(plainSubmit), 0o644); err != nil {
		return err
	}
	for k, stock := range []bool{true, false} {
		o := cluster.Options{Nodes: 1, GPUs: 1, Stock: stock}
		if stock {
			o.JobSubmit = plain
		}
		c, down, err := up(ctx, "learn: true\n", o)
		if err != nil {
			return err
		}
		defer down()
		go func() {
			waits[k], err = learnedWaits(ctx, c, jobs, !stock)
			failures <- err
		}()
	}
	if err := errors.Join(<-failures, <-failures); err != nil {
		return err
	}
	fmt.Printf("\n%d equal jobs of 20 s on one A100, submitted at once after one earlier run (s):\n", jobs)
	var means []float64
	for k, name := range names {
		mean, _ := meanAndP95(waits[k])
		longest := 0.0
		for _, w := range waits[k] {
			longest = max(longest, w)
		}
		means = append(means, mean)
		fmt.Printf("  %-10s mean wait %.0f, longest %.0f\n", name, mean, longest)
	}
	fmt.Printf("  ratio of the means: %.2f\n", means[1]/means[0])
	return nil
}

// learnedWaits returns the waits of the jobs in seconds.
func learnedWaits(ctx context.Context, c *cluster.Cluster, jobs int, learns bool) (waits []float64, err error) {
	run := func(user, script string) string {
		out, stderr, failed := c.Exec(ctx, user, "sh", "-c", script)
		if failed != nil && err == nil {
			err = fmt.Errorf("%s: %w: %s", script, failed, stderr)
		}
		return out
	}
	work := wholeWork
	if learns {
		work = sliceWork
	}
	run("user1", "cat >train <<'E'\n"+trainScript+work+"E\nsbatch --wait train")
	for end := time.Now().Add(learnedWait); err == nil && learns; time.Sleep(time.Second) {
		if strings.Contains(run("root", "cat /etc/caelum/decisions"), "\nuser ") {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the decision table has no learned line after %v", learnedWait)
		}
	}
	last := run("user1", fmt.Sprintf("for i in $(seq %d); do sbatch --parsable train || exit; done | tail -n 1", jobs))
	if err == nil {
		err = gone(ctx, c, time.Second)
	}
	time.Sleep(5 * time.Second) // until slurmdbd has the last job's record
	records := run("root", "sacct -a -X -n -P -o JobID,Submit,Start,State")
	for line := range strings.Lines(records) {
		f := strings.Split(strings.TrimSpace(line), "|")
		submitted, err1 := time.Parse("2006-01-02T15:04:05", f[1])
		started, err2 := time.Parse("2006-01-02T15:04:05", f[2])
		if f[3] != "COMPLETED" || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("job %s: %s", f[0], line)
		}
		waits = append(waits, started.Sub(submitted).Seconds())
	}
	if err == nil && len(waits) != jobs+1 {
		err = fmt.Errorf("sacct has %d jobs, want %d (the last is %s)", len(waits), jobs+1, strings.TrimSpace(last))
	}
	return waits[min(1, len(waits)):], err // without the first job, from which Caelum learned
}
