package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// benchTop measures how long a refresh of `caelum top` takes and how much CPU time it costs slurmctld. The cluster has
// the given number of nodes with eight GPUs each, but only the first two nodes are running. The records of the other
// nodes contain the state that n1's agent published when half of its units were busy.
func benchTop(ctx context.Context, nodes int) (err error) {
	const gres = "gpu:a100:56,mig:1g.5gb:0,mig:1g.10gb:0,mig:2g.10gb:0,mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0," +
		"mig:closed:224"
	others := fmt.Sprintf("x[1-%d]", nodes-2)
	c, down, err := up(ctx, "poll_interval: 1s\n", cluster.Options{Nodes: 2, GPUs: 8, Conf: []string{
		scenarioConf, "NodeName=" + others + " NodeAddr=127.0.0.1 CPUs=64 RealMemory=256000 State=UNKNOWN Gres=" + gres,
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	do := func(args ...string) string {
		out, stderr, failure := c.Exec(ctx, "root", args...)
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w: %s", args, failure, stderr))
		}
		return out
	}
	for k := range 24 {
		profile := []string{"1g.5gb", "2g.10gb", "3g.20gb"}[k%3]
		do("sbatch", "--quiet", "-w", "n1", "-o", "/dev/null", "--gres=gpu:1", "--mig="+profile, "--wrap", "sleep 900")
	}
	time.Sleep(15 * time.Second)
	record := do("scontrol", "-d", "show", "node", "n1")
	_, extra, _ := strings.Cut(record, "Extra=")
	extra, _, _ = strings.Cut(extra, "\n")
	do("scontrol", "update", "nodename="+others, "extra="+extra)
	shown := do("caelum", "status", "--all")
	if err != nil || strings.Count(shown, "3===") < nodes-2 {
		return errors.Join(err, fmt.Errorf("caelum status does not show the state of all nodes:\n%.2000s", shown))
	}
	before := cpuTime(do)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		do("caelum", "status", "--all")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	each := (cpuTime(do) - before) / 50
	fmt.Printf("\ncaelum status --all with %d nodes of 8 GPUs, 50 times:\n", nodes)
	fmt.Printf("  median %.2f s, longest %.2f s, with devcluster exec\n", took[25].Seconds(), took[49].Seconds())
	fmt.Printf("  %v of slurmctld's CPU time each; 100 users of caelum top with the default interval of 15 s: "+
		"%.1f%% of a CPU\n", each, 100*100*each.Seconds()/15)
	return err
}

// cpuTime returns the CPU time that slurmctld has used.
func cpuTime(do func(...string) string) time.Duration {
	stat := strings.Fields(do("sh", "-c", "cat /proc/$(pidof slurmctld)/stat"))
	if len(stat) < 15 {
		return 0
	}
	user, _ := strconv.Atoi(stat[13])
	system, _ := strconv.Atoi(stat[14])
	return time.Duration(user+system) * time.Second / 100 // USER_HZ is 100 on Linux
}
