package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"caelum/contrib/devcluster/cluster"
)

const leases = 200

// options selects the measurements. Measurements whose number is 0 are skipped.
type options struct {
	paired      pairing
	pairs       int
	waitsNodes  int
	onlyWaits   bool
	rpcs        requests
	scale       int
	scaleJobs   int
	queue       int
	top         int
	submissions int
	scenarios   scenarios
	speeds      int
	together    bool
	against     string
	short       int
	rounds      int
	learned     int
	growth      int
	growthSeed  uint64
	growthOnly  string
	preemption  string
}

func (o *options) flags() {
	flag.StringVar(&o.paired.command, "paired", "", "measure this command inside a cluster: sbatch or srun")
	flag.StringVar(&o.paired.with, "with", "", "-paired: arguments of the command with the plugin")
	flag.StringVar(&o.paired.without, "without", "", "-paired: arguments of the command without the plugin")
	flag.StringVar(&o.paired.conf, "conf", "/etc/slurm", "-paired: directory of the slurm.conf without the plugin")
	flag.IntVar(&o.pairs, "waits", 100, "number of pairs of jobs for the measurement of waits; 0: omit")
	flag.IntVar(&o.waitsNodes, "waits-nodes", 1, "-waits: number of nodes; above 1, the watcher is a planner")
	flag.BoolVar(&o.onlyWaits, "only-waits", false, "run only the measurement of -waits")
	flag.BoolVar(&o.rpcs.planner, "rpcs-planner", false,
		"-rpcs: the watcher is a planner, and the agents poll every 15 s")
	flag.IntVar(&o.rpcs.records, "rpcs-records", 0, "-rpcs: number of nodes in slurmctld; those above -rpcs do not run")
	flag.IntVar(&o.rpcs.rate, "rpcs-rate", 2, "-rpcs: number of jobs per second")
	flag.IntVar(&o.scale, "scale", 0,
		"measure only slurmctld's CPU time for the commands of agents and the watcher with this number of nodes, "+
			"all but two of which are only records; 0: omit")
	flag.IntVar(&o.scaleJobs, "scale-jobs", 0, "-scale: number of waiting jobs")
	flag.IntVar(&o.queue, "queue", 0, "measure only what Caelum's commands and daemons need with this number of nodes "+
		"and a queue that one user has filled; 0: omit")
	flag.IntVar(&o.rpcs.nodes, "rpcs", 0,
		"measure only the requests that this number of nodes send to slurmctld; 0: omit")
	flag.IntVar(&o.top, "top", 0, "measure only a refresh of caelum top with this number of nodes; 0: omit")
	flag.IntVar(&o.submissions, "submissions", 0, "measure only the load that this number of submissions puts on "+
		"slurmctld: without job_submit.lua, with job_submit.lua, and with a large decision table")
	flag.StringVar(&o.against, "against", "",
		"measure only the difference from the build in this directory (build/ of another checkout)")
	s := &o.scenarios
	s.nodes, s.gpus = 4, 4
	flag.IntVar(&s.jobs, "ways", 0, "run only a trace of this many jobs with whole GPUs, fixed layouts and Caelum")
	flag.Uint64Var(&s.seed, "ways-seed", 1, "-ways: seed of the trace")
	flag.Float64Var(&s.load, "ways-load", 0.85, "-ways: mean share of the units that the jobs use")
	flag.Float64Var(&s.mean, "ways-mean", 20, "-ways: mean duration of the jobs in seconds")
	flag.BoolVar(&s.mixed, "ways-mixed", false, "-ways: use two nodes of A100-40GB and two of H100-80GB")
	flag.Float64Var(&s.multi, "ways-multi", 0,
		"-ways: share of the jobs that need 2 or 4 full GPUs of one node; uses H100-80GB, and compares full GPUs "+
			"only, the best fixed split into full GPUs and MIG layouts, and Caelum with whole_gpus: auto")
	flag.BoolVar(&s.latency, "ways-latency", false, "-ways: with Caelum, emulate the latencies of real drivers")
	flag.StringVar(&s.only, "ways-only", "", "-ways: run only this configuration: whole, static or caelum")
	flag.IntVar(&o.speeds, "ways-speeds", 0,
		"run only a trace of this number of jobs whose run times depend on their slices, on two nodes, with whole "+
			"GPUs, fixed layouts, and Caelum with both values of sizing; "+
			"-ways-load is then a share of whole GPUs, and -ways-mean the mean run time on a whole GPU")
	flag.BoolVar(&o.together, "ways-together", false, "-ways-speeds: run all configurations at the same time")
	flag.IntVar(&o.short, "short", 0,
		"run only this number of short jobs, and compare gres/gpu, static slices and Caelum")
	flag.IntVar(&o.learned, "learned", 0,
		"run only this number of equal jobs after one earlier run, with whole GPUs and with Caelum's default "+
			"configuration, at the same time")
	flag.IntVar(&o.growth, "grow", 0,
		"run only a trace of this number of jobs whose memory grows, with the growth modes off, oom and forecast, in "+
			"three clusters at the same time")
	flag.Uint64Var(&o.growthSeed, "grow-seed", 1, "-grow: seed of the trace")
	flag.StringVar(&o.growthOnly, "grow-only", "", "-grow: run only this mode: off, oom or forecast")
	flag.IntVar(&o.rounds, "rounds", 3, "-short: number of rounds")
	flag.StringVar(&o.preemption, "preemption", "",
		"run only the cases of preemption with this PreemptType (partition_prio or qos), and compare slurmctld with "+
			"static slices and Caelum")
}

func (o *options) run(ctx context.Context) error {
	switch {
	case o.paired.command != "":
		return o.paired.measure()
	case o.rpcs.nodes > 0:
		return benchRPCs(ctx, o.rpcs)
	case o.scale > 0:
		return benchScale(ctx, o.scale, o.scaleJobs)
	case o.queue > 0:
		return benchQueue(ctx, o.queue)
	case o.top > 0:
		return benchTop(ctx, o.top)
	case o.submissions > 0:
		return benchSubmissions(ctx, o.submissions)
	case o.short > 0:
		return benchShort(ctx, o.short, o.rounds)
	case o.learned > 0:
		return benchLearned(ctx, o.learned)
	case o.growth > 0:
		return benchGrowth(ctx, o.growth, o.growthSeed, o.growthOnly)
	case o.speeds > 0:
		s := o.scenarios
		s.jobs, s.nodes = o.speeds, 2
		return benchSpeeds(ctx, s, o.together)
	case o.scenarios.jobs > 0:
		return benchScenarios(ctx, o.scenarios)
	case o.preemption != "":
		return benchPreemption(ctx, o.preemption)
	case o.against != "":
		return benchAgainst(ctx, o.against)
	case o.onlyWaits:
		return benchWaits(ctx, o.pairs, o.waitsNodes)
	}
	return errors.Join(bench(ctx), benchPlugin(ctx, ""), benchWaits(ctx, o.pairs, o.waitsNodes))
}

func main() {
	var o options
	o.flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// up starts a cluster whose agents use config as their caelum.yaml. The returned function stops the cluster.
func up(ctx context.Context, config string, o cluster.Options) (c *cluster.Cluster, down func() error, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	o.AgentConfig = filepath.Join(dir, "caelum.yaml")
	err = os.WriteFile(o.AgentConfig, []byte(config), 0o644)
	if err == nil {
		c, err = cluster.Start(ctx, o)
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, func() error { return errors.Join(c.Stop(), os.RemoveAll(dir)) }, nil
}

func bench(ctx context.Context) (err error) {
	c, down, err := up(
		ctx,
		"poll_interval: 1s\nlog_format: json\nlog_level: debug\n",
		cluster.Options{Nodes: 1, GPUs: 4},
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	if _, _, err := c.Exec(ctx, "root", "sdiag", "--reset"); err != nil {
		return err
	}
	fmt.Printf("Duration of the prologs' requests to the agent, over %d leases; the driver has no delays:\n", leases)
	if err := prologs(ctx, c); err != nil {
		return err
	}
	if err := publication(ctx, c); err != nil {
		return err
	}
	if _, stderr, err := c.ExecNode(ctx, "n1", "root", "nvml-emulator", "latency", "realistic"); err != nil {
		return fmt.Errorf("latency: %w: %s", err, stderr)
	}
	fmt.Printf("\nDuration of the prologs' requests to the agent, over %d leases; "+
		"the driver has the delays of an A100:\n", leases)
	return prologs(ctx, c)
}

// columns lists the parts of a prolog's duration, with the corresponding fields of the agent's log line.
var columns = []struct{ name, field string }{
	{
		"the agent's own time",
		"own_ms",
	}, {"waiting for slurmctld", "slurmctld_ms"}, {"waiting for the driver", "driver_ms"}, {"the whole call", "ms"},
}

// serve runs short jobs with random profiles. Every call uses the same sequence of profiles.
func serve(ctx context.Context, c *cluster.Cluster) error {
	profiles := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	rng := rand.New(rand.NewPCG(1, 1))
	for range leases {
		p := profiles[rng.IntN(len(profiles))]
		if _, stderr, err := c.Exec(ctx, "root", "sbatch", "-o", "/dev/null", "--gres=mig:"+p+":1", "--wrap",
			"true"); err != nil {
			return fmt.Errorf("sbatch: %w: %s", err, stderr)
		}
	}
	return gone(ctx, c, time.Second)
}

// prologs runs jobs and prints the parts of the prologs' durations from the agent's log.
func prologs(ctx context.Context, c *cluster.Cluster) error {
	before, err := served(c)
	if err != nil {
		return err
	}
	if err := serve(ctx, c); err != nil {
		return err
	}
	all, err := served(c)
	if err != nil {
		return err
	}
	all = all[len(before):]
	fmt.Printf("  %-28s %8s %8s   (ms, %d prologs)\n", "", "p50", "p99", len(all))
	for _, column := range columns {
		p50, p99 := quantiles(all, column.field)
		fmt.Printf("  %-28s %8.2f %8.2f\n", column.name, p50, p99)
	}
	return nil
}

// quantiles returns the median and the 99th percentile of a field. The argument all is the result of a call to served.
func quantiles(all []map[string]float64, field string) (p50, p99 float64) {
	var v []float64
	for _, line := range all {
		v = append(v, line[field])
	}
	slices.Sort(v)
	return v[len(v)/2], v[min(len(v)-1, len(v)*99/100)]
}

// served returns the fields of all "prolog served" lines in the agents' logs.
func served(c *cluster.Cluster) ([]map[string]float64, error) {
	text, err := c.Log("agent-n1")
	if err != nil {
		return nil, err
	}
	var all []map[string]float64
	for line := range strings.Lines(text) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil || fields["msg"] != "prolog served" {
			continue
		}
		times := map[string]float64{}
		for k, v := range fields {
			if ms, ok := v.(float64); ok {
				times[k] = ms
			}
		}
		all = append(all, times)
	}
	return all, nil
}

// publication prints slurmctld's statistics about the agents' publishing requests.
func publication(ctx context.Context, c *cluster.Cluster) error {
	out, _, err := c.Exec(ctx, "root", "sdiag")
	if err != nil {
		return err
	}
	fmt.Println("\nCost of publishing for slurmctld in this period (sdiag):")
	byType := false
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		byType = byType || strings.HasPrefix(line, "Remote Procedure Call statistics by message type")
		if strings.HasPrefix(line, "Remote Procedure Call statistics by user") {
			break
		}
		for _, rpc := range []string{
			"REQUEST_UPDATE_NODE", "REQUEST_NODE_INFO_SINGLE", "REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE",
		} {
			if byType && strings.HasPrefix(line, rpc+" ") {
				fmt.Println("  " + strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return nil
}
