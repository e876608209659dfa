package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

const (
	sbatchPairs = 200
	srunPairs   = 400 // many pairs are needed because a step involves four daemons and its start time varies
	warmUp      = 10
)

// otherConf is the directory of the second configuration.
const otherConf = "/etc/slurm/other"

// benchPlugin measures the additional time that sbatch and a step take because sbatch, srun and slurmstepd load the
// plugin. For a step, it makes two comparisons. The first one, of two identical nodes with the plugin, shows the
// measurement noise. In the second one, one of the nodes runs without the plugin, or with the plugin at the path given
// by other.
func benchPlugin(ctx context.Context, other string) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, GPUs: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := otherPlugin(ctx, c, other); err != nil {
		return err
	}
	var jobs []string
	for _, node := range []string{"n1", "n2"} {
		_, stderr, err := c.Exec(ctx, "root", "salloc", "--no-shell", "-p", "plain", "-w", node, "-n1")
		if err != nil {
			return fmt.Errorf("salloc: %w: %s", err, stderr)
		}
		granted := regexp.MustCompile(`Granted job allocation (\d+)`).FindStringSubmatch(stderr)
		if granted == nil {
			return fmt.Errorf("salloc: %s", stderr)
		}
		jobs = append(jobs, "--jobid="+granted[1]+" true")
	}
	second := "without it"
	if other != "" {
		second = "with the other plugin"
	}
	fmt.Printf("\nCost of the plugin, over alternating pairs of a command with the plugin and %s:\n", second)
	const sbatch = "-H -o /dev/null --wrap true"
	if err := pair(ctx, c, "sbatch", sbatch, sbatch, otherConf); err != nil {
		return err
	}
	if err := pair(ctx, c, "srun", jobs[0], jobs[1], "/etc/slurm"); err != nil {
		return err
	}
	fmt.Println("  ... previous line: both nodes run with the plugin; next line: one node runs " + second)
	if _, stderr, err := c.ExecNode(ctx, "n2", "root", "mount", "--bind", otherConf+"/plugstack.conf",
		"/etc/slurm/plugstack.conf"); err != nil {
		return fmt.Errorf("mount: %w: %s", err, stderr)
	}
	if err := c.RestartUnit("slurmd-n2"); err != nil {
		return err
	}
	return pair(ctx, c, "srun", jobs[0], jobs[1], otherConf)
}

func pair(ctx context.Context, c *cluster.Cluster, command, with, without, conf string) error {
	out, stderr, err := c.Exec(
		ctx, "root", "devcluster-bench", "-paired", command, "-with", with, "-without", without, "-conf", conf,
	)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, stderr)
	}
	fmt.Print(out)
	return nil
}

// otherPlugin creates a second configuration, which differs from the first only in the plugin: it loads the plugin at
// the path given by other, or no plugin if other is empty.
func otherPlugin(ctx context.Context, c *cluster.Cluster, other string) error {
	const script = `mkdir "$1" && cp /etc/slurm/*.conf "$1" &&
echo "PlugStackConfig=$1/plugstack.conf" >>"$1/slurm.conf" &&
		{ [ -z "$2" ] || echo "required $2"; } >"$1/plugstack.conf"`
	if _, stderr, err := c.Exec(ctx, "root", "sh", "-c", script, "sh", otherConf, other); err != nil {
		return fmt.Errorf("%w: %s", err, stderr)
	}
	return nil
}

// pairing describes a command whose duration is measured with two configurations: the one in /etc/slurm and the one in
// conf.
type pairing struct{ command, with, without, conf string }

// measure runs the two commands of each pair in random order and prints the difference between their durations. It must
// run inside the cluster.
func (p pairing) measure() error {
	pairs := sbatchPairs
	if p.command == "srun" {
		pairs = srunPairs
	}
	once := func(conf, args string) (float64, error) {
		cmd := exec.Command(p.command, strings.Fields(args)...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf+"/slurm.conf")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%s: %w: %s", p.command, err, out)
		}
		return float64(time.Since(began).Microseconds()) / 1000, nil
	}
	var with, without, diff []float64
	for i := range pairs + warmUp {
		times := [2]float64{}
		first := rand.IntN(2)
		for _, k := range []int{first, 1 - first} {
			var err error
			if k == 0 {
				times[k], err = once("/etc/slurm", p.with)
			} else {
				times[k], err = once(p.conf, p.without)
			}
			if err != nil {
				return err
			}
		}
		if i >= warmUp {
			with, without, diff = append(with, times[0]), append(without, times[1]), append(diff, times[0]-times[1])
		}
	}
	low, high := interval(diff)
	fmt.Printf(
		"  %-7s %6.2f and %6.2f ms (medians), median difference of %d pairs %+.3f ms (95%% interval %+.3f to %+.3f)\n",
		p.command,
		median(with),
		median(without),
		pairs,
		median(diff),
		low,
		high,
	)
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// interval returns the 95% bootstrap interval of the median.
func interval(v []float64) (low, high float64) {
	var medians []float64
	for range 2000 {
		again := make([]float64, len(v))
		for i := range again {
			again[i] = v[rand.IntN(len(v))]
		}
		medians = append(medians, median(again))
	}
	slices.Sort(medians)
	return medians[len(medians)*25/1000], medians[len(medians)*975/1000]
}
