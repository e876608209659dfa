package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// untilPolled is the time in which every agent of a new cluster has published its offers and polled again.
const untilPolled = 45 * time.Second

// requests are the options of benchRPCs.
type requests struct {
	nodes   int  // the number of running nodes, which have one GPU each
	records int  // the number of nodes in slurmctld, if it is larger; the other nodes do not run
	rate    int  // the number of jobs that are submitted per second
	planner bool // whether the watcher is a planner, and the agents poll every 15 s instead of every minute
}

// benchRPCs measures the requests that the agents and the watcher send to slurmctld, and slurmctld's CPU time. The
// measurement takes two minutes without jobs, a minute with jobs that run for 2 s and have one slice each, and a minute
// with the same jobs without slices.
func benchRPCs(ctx context.Context, r requests) (err error) {
	config := "poll_interval: 1m\nwake_port: 6873\nlearn: false\n"
	if r.planner {
		config = "wake_port: 6873\nlearn: false\nplanner: true\n"
	}
	conf, others := []string{scenarioConf}, ""
	if r.records > r.nodes {
		others = namesOfRecords(r.records - r.nodes)
		conf = append(conf, recordsConf(others))
	}
	c, down, err := up(ctx, config, cluster.Options{Nodes: r.nodes, GPUs: 1, Conf: conf})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	do := doer(ctx, c, &err)
	time.Sleep(untilPolled)
	if others != "" {
		do("scontrol", "update", "nodename="+others, "extra="+extraIn(do("scontrol", "-d", "show", "node", "n1")))
	}
	fmt.Printf("\nRequests to slurmctld from %d nodes, with %d node records:\n", r.nodes, max(r.nodes, r.records))
	asked(do, "at rest, two minutes", 2*time.Minute, 0, nil)
	profiles := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	for _, gpus := range []bool{true, false} {
		what, gres := "jobs with slices, one minute", ""
		if !gpus {
			what, gres = "jobs without slices, one minute", "none"
		}
		asked(do, what, time.Minute, r.rate, func() {
			if gpus {
				gres = "mig:" + profiles[rand.IntN(len(profiles))] + ":1"
			}
			do("sbatch", "--quiet", "-o", "/dev/null", "-t", "1", "--gres="+gres, "--wrap", "sleep 2")
		})
		for do("squeue", "-h", "-t", "PD,R,CG") != "" && err == nil {
			time.Sleep(time.Second)
		}
	}
	return err
}

var rpcLine = regexp.MustCompile(
	`(?m)^\s+(REQUEST_\S+|MESSAGE_\S+)\s+\(\s*\d+\) count:(\d+)\s+ave_time:(\d+)\s+total_time:(\d+)`,
)

// asked prints slurmctld's statistics about the requests that it receives in a period of length d, and its CPU time in
// this period. It calls job rate times per second.
func asked(do func(...string) string, what string, d time.Duration, rate int, job func()) {
	do("sdiag", "--reset")
	began, cpu, jobs := time.Now(), cpuTime(do), 0
	for end := began.Add(d); time.Now().Before(end); {
		next := end
		if rate > 0 {
			job()
			jobs++
			next = began.Add(time.Duration(jobs) * time.Second / time.Duration(rate))
		}
		time.Sleep(time.Until(next))
	}
	out := do("sdiag")
	took := time.Since(began).Seconds()
	share := (cpuTime(do) - cpu).Seconds() / took
	type kind struct {
		name        string
		count, mean int
		total       int // microseconds
	}
	var all []kind
	count, total := 0, 0
	byType, _, _ := strings.Cut(out, "Remote Procedure Call statistics by user")
	for _, m := range rpcLine.FindAllStringSubmatch(byType, -1) {
		k := kind{name: m[1]}
		k.count, _ = strconv.Atoi(m[2])
		k.mean, _ = strconv.Atoi(m[3])
		k.total, _ = strconv.Atoi(m[4])
		all = append(all, k)
		count, total = count+k.count, total+k.total
	}
	slices.SortFunc(all, func(a, b kind) int { return cmp.Compare(b.total, a.total) })
	fmt.Printf("  %s: %d jobs, %.1f requests per second, %.2f%% of slurmctld's time, %.2f%% of a core\n",
		what, jobs, float64(count)/took, float64(total)/1e4/took, 100*share)
	for _, k := range all[:min(len(all), 8)] {
		fmt.Printf("    %-32s %6.2f per second, %6d us each\n", k.name, float64(k.count)/took, k.mean)
	}
}
