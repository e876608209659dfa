package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// rounds is the number of times that benchAgainst runs each of the two builds. The builds alternate, so that other load
// on the machine affects both of them.
const rounds = 4

// alone is the number of jobs that serveAlone runs.
const alone = 50

// serveAlone runs jobs one after another. Each job ends before the next one is submitted.
func serveAlone(ctx context.Context, c *cluster.Cluster) error {
	for range alone {
		if _, stderr, err := c.Exec(ctx, "root", "srun", "--gres=mig:2g.10gb:1", "true"); err != nil {
			return fmt.Errorf("srun: %w: %s", err, stderr)
		}
	}
	return gone(ctx, c, time.Second)
}

// benchAgainst compares this build with the build in the other directory. It measures sbatch and a step with the plugin
// of each build, and prologs with the agent of each build.
func benchAgainst(ctx context.Context, other string) error {
	other, err := filepath.Abs(other)
	if err != nil {
		return err
	}
	plugin := filepath.Join(other, "spank_caelum.so")
	fmt.Printf("In each pair, the first value is from this build, and the second value is from %s.\n", other)
	return errors.Join(benchPlugin(ctx, plugin), prologsAgainst(ctx, other))
}

// prologsAgainst runs jobs on a cluster of each build in turn and prints the durations of the prologs according to the
// agents' logs.
func prologsAgainst(ctx context.Context, other string) (err error) {
	var clusters [2]*cluster.Cluster
	for k, build := range []string{"", other} {
		c, down, err := up(
			ctx,
			"poll_interval: 1s\nlog_format: json\nlog_level: debug\n",
			cluster.Options{Nodes: 1, GPUs: 4, Build: build},
		)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, down()) }()
		clusters[k] = c
	}
	for _, way := range []struct {
		name string
		each int // number of prologs for each build per round
		run  func(context.Context, *cluster.Cluster) error
	}{
		{"one job after another", alone, serveAlone},
		{"as many jobs as fit at the same time", leases, serve},
	} {
		var before [2]int
		for k, c := range clusters {
			all, err := served(c)
			if err != nil {
				return err
			}
			before[k] = len(all)
		}
		for range rounds {
			for _, c := range clusters {
				if err := way.run(ctx, c); err != nil {
					return err
				}
			}
		}
		fmt.Printf(
			"\nPrologs, %s, %d of each build in %d rounds, milliseconds (median, p99); the driver has no delays:\n",
			way.name,
			rounds*way.each,
			rounds,
		)
		for _, column := range columns {
			fmt.Printf("  %-28s", column.name)
			for k, c := range clusters {
				all, err := served(c)
				if err != nil {
					return err
				}
				p50, p99 := quantiles(all[before[k]:], column.field)
				fmt.Printf("  %8.2f %8.2f", p50, p99)
			}
			fmt.Println()
		}
	}
	return nil
}
