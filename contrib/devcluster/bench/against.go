package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"caelum/contrib/devcluster/cluster"
)

// rounds is how often benchAgainst changes between the two builds, so that a busy moment of the machine meets both.
const rounds = 4

// benchAgainst compares this build with another one: sbatch and a step with the plugin of each, and prologs served by the
// agent of each. other is the build folder of the other one.
func benchAgainst(ctx context.Context, other string) error {
	other, err := filepath.Abs(other)
	if err != nil {
		return err
	}
	plugin := filepath.Join(other, "spank_caelum.so")
	fmt.Printf("The first of each pair is this build, the second %s.\n", other)
	return errors.Join(benchPlugin(ctx, plugin), prologsAgainst(ctx, other))
}

// prologsAgainst serves jobs on one cluster of each build in turn, and prints what the agents' logs say of both.
func prologsAgainst(ctx context.Context, other string) (err error) {
	var clusters [2]*cluster.Cluster
	for k, build := range []string{"", other} {
		c, down, err := up(ctx, "poll_interval: 1s\nlog_format: json\nlog_level: debug\n", cluster.Options{Nodes: 1, GPUs: 4, Build: build})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, down()) }()
		clusters[k] = c
	}
	for range rounds {
		for _, c := range clusters {
			if err := serve(ctx, c); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\nPrologs, %d of each build in %d rounds, milliseconds (median, p99); the driver answers at once:\n", rounds*leases, rounds)
	for _, column := range columns {
		fmt.Printf("  %-28s", column.name)
		for _, c := range clusters {
			all, err := served(c)
			if err != nil {
				return err
			}
			p50, p99 := quantiles(all, column.field)
			fmt.Printf("  %8.2f %8.2f", p50, p99)
		}
		fmt.Println()
	}
	return nil
}
