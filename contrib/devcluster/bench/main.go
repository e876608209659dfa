// Command bench is `make bench`: what Caelum costs, measured on a devcluster. Machines differ and are noisy: what counts are
// the differences and ratios within one run.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"caelum/contrib/devcluster/cluster"
)

const (
	leases = 200
	pairs  = 100
)

func main() {
	paired := flag.String("paired", "", "run the paired measurement of this command inside a cluster: sbatch or srun")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := bench
	if *paired != "" {
		run = func(context.Context) error { return measurePairs(*paired) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "caelum.yaml")
	if err := os.WriteFile(config, []byte("poll_interval: 1s\nlog_format: json\nlog_level: debug\n"), 0o644); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 1, GPUs: 4, AgentConfig: config})
	if err != nil {
		return err
	}
	defer func() {
		if serr := c.Stop(); err == nil {
			err = serr
		}
	}()
	if _, _, err := c.Exec(ctx, "root", "sdiag", "--reset"); err != nil {
		return err
	}
	fmt.Printf("The agent, over %d leases; the driver answers at once:\n", leases)
	if err := prologs(ctx, c); err != nil {
		return err
	}
	if err := publication(ctx, c); err != nil {
		return err
	}
	if _, stderr, err := c.ExecNode(ctx, "n1", "root", "nvml-emulator", "latency", "realistic"); err != nil {
		return fmt.Errorf("latency: %w: %s", err, stderr)
	}
	fmt.Printf("\nThe agent, over %d leases; the driver takes as long as an A100's:\n", leases)
	if err := prologs(ctx, c); err != nil {
		return err
	}
	if err := withoutPlugin(ctx, c); err != nil {
		return err
	}
	fmt.Printf("\nThe plugin, over %d pairs of a command with it and without it, in turn:\n", pairs)
	for _, command := range []string{"sbatch", "srun"} {
		out, stderr, err := c.Exec(ctx, "root", "devcluster-bench", "-paired", command)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, stderr)
		}
		fmt.Print(out)
	}
	return nil
}

// prologs has as many short jobs of random profiles run, and reads from the agent's log where each prolog's time went.
func prologs(ctx context.Context, c *cluster.Cluster) error {
	before, err := served(c)
	if err != nil {
		return err
	}
	profiles := []string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	rng := rand.New(rand.NewPCG(1, 1))
	for range leases {
		p := profiles[rng.IntN(len(profiles))]
		if _, stderr, err := c.Exec(ctx, "root", "sbatch", "-o", "/dev/null", "--gres=mig:"+p+":1", "--wrap", "true"); err != nil {
			return fmt.Errorf("sbatch: %w: %s", err, stderr)
		}
	}
	for {
		out, _, err := c.Exec(ctx, "root", "squeue", "-h")
		if err != nil {
			return err
		}
		if strings.TrimSpace(out) == "" {
			break
		}
		time.Sleep(time.Second)
	}
	all, err := served(c)
	if err != nil {
		return err
	}
	all = all[len(before):]
	fmt.Printf("  %-28s %8s %8s   (ms, %d prologs)\n", "", "p50", "p99", len(all))
	for _, column := range []struct{ name, field string }{
		{"the agent's own time", "own_ms"}, {"waiting for slurmctld", "slurmctld_ms"}, {"waiting for the driver", "driver_ms"}, {"the whole call", "ms"},
	} {
		var v []float64
		for _, line := range all {
			v = append(v, line[column.field])
		}
		slices.Sort(v)
		fmt.Printf("  %-28s %8.2f %8.2f\n", column.name, v[len(v)/2], v[min(len(v)-1, len(v)*99/100)])
	}
	return nil
}

// served reads the agent's lines "prolog served".
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

// publication prints what slurmctld says of the calls by which agents publish.
func publication(ctx context.Context, c *cluster.Cluster) error {
	out, _, err := c.Exec(ctx, "root", "sdiag")
	if err != nil {
		return err
	}
	fmt.Println("\nWhat publishing cost slurmctld meanwhile (sdiag):")
	byType := false
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		byType = byType || strings.HasPrefix(line, "Remote Procedure Call statistics by message type")
		if strings.HasPrefix(line, "Remote Procedure Call statistics by user") {
			break
		}
		for _, rpc := range []string{"REQUEST_UPDATE_NODE", "REQUEST_NODE_INFO_SINGLE", "REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE"} {
			if byType && strings.HasPrefix(line, rpc+" ") {
				fmt.Println("  " + strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return nil
}

const noPlugin = "/etc/slurm/noplugin"

// withoutPlugin makes a second configuration, the same but for the plugin.
func withoutPlugin(ctx context.Context, c *cluster.Cluster) error {
	_, stderr, err := c.Exec(ctx, "root", "sh", "-c",
		"mkdir "+noPlugin+" && cp /etc/slurm/*.conf "+noPlugin+" && : > "+noPlugin+"/plugstack.conf && echo PlugStackConfig="+noPlugin+"/plugstack.conf >> "+noPlugin+"/slurm.conf")
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr)
	}
	return nil
}

// measurePairs runs inside the cluster: the command with and without the plugin, in turn and in random order.
func measurePairs(command string) error {
	args := map[string][]string{
		"sbatch": {"-H", "-o", "/dev/null", "--wrap", "true"},
		"srun":   {"-p", "plain", "true"},
	}[command]
	once := func(conf string) (float64, error) {
		cmd := exec.Command(command, args...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf+"/slurm.conf")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%s: %w: %s", command, err, out)
		}
		return float64(time.Since(began).Microseconds()) / 1000, nil
	}
	var with, without, diff []float64
	for i := range pairs + 5 {
		confs := []string{"/etc/slurm", noPlugin}
		first := rand.IntN(2)
		times := [2]float64{}
		for _, k := range []int{first, 1 - first} {
			t, err := once(confs[k])
			if err != nil {
				return err
			}
			times[k] = t
		}
		if i >= 5 { // the first ones warm up
			with, without, diff = append(with, times[0]), append(without, times[1]), append(diff, times[0]-times[1])
		}
	}
	low, high := interval(diff)
	fmt.Printf("  %-7s with %6.2f ms, without %6.2f ms (medians), median difference of pairs %+.3f ms (95%% interval %+.3f to %+.3f)\n",
		command, median(with), median(without), median(diff), low, high)
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// interval is the bootstrap's 95% interval of the median.
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
