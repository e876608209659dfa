package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// shortWays lists the clusters that benchShort compares. Each cluster has one node with four GPUs and 28 slots in
// total.
var shortWays = []struct {
	name    string
	noAgent bool
	gres    string // the node's Gres; used if no agent is running
	ask     string
}{
	{"gres/gpu alone", true, "gpu:a100:28", "--gres=gpu:1"},
	{"static slices", true, "gpu:a100:28,mig:1g.5gb:28", "--gres=gpu:1,mig:1g.5gb:1"},
	{"caelum", false, "", "--gres=gpu:1,mig:1g.5gb:1"},
}

// shortLoads lists the loads that benchShort measures. Each load specifies the run time of its jobs in seconds, and
// whether the jobs are the tasks of one array or separate submissions.
var shortLoads = []struct {
	name    string
	seconds int
	array   bool
}{
	{"1 s, one array", 1, true},
	{"1 s, a call each", 1, false},
	{"2 s, one array", 2, true},
}

// benchShort measures the time from the submission of the first of a number of short jobs to the end of the last one.
// Each round runs all clusters in random order. The output consists of the median times in seconds, and their ratios to
// the median with static slices.
func benchShort(ctx context.Context, jobs, rounds int) (err error) {
	var clusters []*cluster.Cluster
	for _, way := range shortWays {
		o := cluster.Options{Nodes: 1, GPUs: 4, NoAgent: way.noAgent}
		c, down, err := up(ctx, "poll_interval: 15s\nwake_port: 6873\nlearn: false\nlog_format: json\n", o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, down()) }()
		if way.noAgent {
			if _, stderr, err := c.Exec(ctx, "root", "scontrol", "update", "nodename=n1",
				"gres="+way.gres); err != nil {
				return fmt.Errorf("%w: %s", err, stderr)
			}
		}
		clusters = append(clusters, c)
	}
	fmt.Printf(
		"\n%d short jobs on 28 slots of one node, from the first submission until the last job ends "+
			"(s, medians of %d rounds; ratio to static slices):\n",
		jobs,
		rounds,
	)
	for _, load := range shortLoads {
		took := make([][]float64, len(shortWays))
		for range rounds {
			for _, k := range rand.Perm(len(shortWays)) {
				seconds, err := runShort(ctx, clusters[k], jobs, load.seconds, load.array, shortWays[k].ask)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", shortWays[k].name, load.name, err)
				}
				took[k] = append(took[k], seconds)
			}
		}
		fmt.Printf("  %-18s", load.name)
		for k, way := range shortWays {
			fmt.Printf("  %s %.1f (%.2f)", way.name, median(took[k]), median(took[k])/median(took[1]))
		}
		fmt.Println()
	}
	return nil
}

// shortLogged matches the lines in slurmctld's log that record when jobs and array tasks were submitted and when they
// ended.
var shortLogged = regexp.MustCompile(
	`(?m)^\[([^\]]+)\] .*?(_slurm_rpc_submit_batch_job:|_job_complete:) JobId=\S+ (?:InitPrio|done)`,
)

// runShort runs one load and returns its duration in seconds according to slurmctld's log.
func runShort(ctx context.Context, c *cluster.Cluster, jobs, seconds int, array bool, ask string) (float64, error) {
	before, err := c.Log("slurmctld")
	if err != nil {
		return 0, err
	}
	sbatch := fmt.Sprintf("sbatch -o /dev/null %s --wrap 'exec sleep %d'", ask, seconds)
	script := fmt.Sprintf("for i in $(seq %d); do %s || exit; done", jobs, sbatch)
	if array {
		script = strings.Replace(sbatch, "sbatch ", fmt.Sprintf("sbatch --array=1-%d ", jobs), 1)
	}
	if _, stderr, err := c.Exec(ctx, "user1", "sh", "-c", script); err != nil {
		return 0, fmt.Errorf("%w: %s", err, stderr)
	}
	if err := gone(ctx, c, time.Second); err != nil {
		return 0, err
	}
	log, err := c.Log("slurmctld")
	if err != nil {
		return 0, err
	}
	var first, last time.Time
	ended := 0
	for _, m := range shortLogged.FindAllStringSubmatch(log[len(before):], -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000", m[1])
		if err != nil {
			return 0, err
		}
		switch {
		case m[2] == "_slurm_rpc_submit_batch_job:" && first.IsZero():
			first = at
		case m[2] == "_job_complete:":
			last = at
			ended++
		}
	}
	if first.IsZero() || ended < jobs {
		return 0, fmt.Errorf("slurmctld's log contains the ends of only %d of %d jobs", ended, jobs)
	}
	return last.Sub(first).Seconds(), nil
}
