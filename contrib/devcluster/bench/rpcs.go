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

// benchRPCs measures the requests that the agents and the watcher send to slurmctld. The cluster has the given number
// of nodes with one GPU each. The watcher is running, and the agents poll every minute or, if the watcher is a planner,
// every 15 s. The measurement takes two minutes without jobs, and another minute with two short jobs per second.
func benchRPCs(ctx context.Context, nodes int, planner bool) (err error) {
	config := "poll_interval: 1m\nwake_port: 6873\n"
	if planner {
		config = "wake_port: 6873\nplanner: true\n"
	}
	c, down, err := up(
		ctx,
		config,
		cluster.Options{Nodes: nodes, GPUs: 1, Conf: []string{scenarioConf}},
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	time.Sleep(untilPolled)
	fmt.Printf("\nRequests to slurmctld from %d nodes:\n", nodes)
	if err := asked(ctx, c, "at rest, two minutes", 2*time.Minute, nil); err != nil {
		return err
	}
	return asked(ctx, c, "under load, one minute", time.Minute, func() error {
		profile := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}[rand.IntN(6)]
		_, stderr, err := c.Exec(
			ctx,
			"root",
			"sbatch",
			"-o",
			"/dev/null",
			"-t",
			"1",
			"--gres=mig:"+profile+":1",
			"--wrap",
			"sleep 2",
		)
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		time.Sleep(450 * time.Millisecond)
		return nil
	})
}

var rpcLine = regexp.MustCompile(
	`(?m)^\s+(REQUEST_\S+|MESSAGE_\S+)\s+\(\s*\d+\) count:(\d+)\s+ave_time:(\d+)\s+total_time:(\d+)`,
)

// asked prints slurmctld's statistics about the requests that it receives in a period of length d. If do is not nil,
// asked calls it repeatedly during this period.
func asked(ctx context.Context, c *cluster.Cluster, what string, d time.Duration, do func() error) error {
	if _, stderr, err := c.Exec(ctx, "root", "sdiag", "--reset"); err != nil {
		return fmt.Errorf("%w: %s", err, stderr)
	}
	began := time.Now()
	for end := began.Add(d); time.Now().Before(end); {
		if do == nil {
			time.Sleep(time.Until(end))
		} else if err := do(); err != nil {
			return err
		}
	}
	out, _, err := c.Exec(ctx, "root", "sdiag")
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
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
	fmt.Printf(
		"  %s: %.1f requests per second, %.2f%% of slurmctld's time\n",
		what,
		float64(count)/took,
		float64(total)/1e4/took,
	)
	for _, k := range all[:min(len(all), 8)] {
		fmt.Printf("    %-32s %6.2f per second, %6d us each\n", k.name, float64(k.count)/took, k.mean)
	}
	return nil
}
