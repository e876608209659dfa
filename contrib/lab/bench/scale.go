package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// benchScale measures how much CPU time each command of the agents and the watcher costs slurmctld in a cluster with
// the given number of nodes with eight GPUs each. slurmctld, its records and the commands are real, but only the first
// two nodes are running. The records of the other nodes contain the state that n1's agent published. If jobs is not 0,
// this number of jobs is waiting.
func benchScale(ctx context.Context, nodes, jobs int) (err error) {
	c, down, err := upWithRecords(ctx, "poll_interval: 1h\n", nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	do := doer(ctx, c, &err)
	if jobs > 0 {
		do("sh", "-c", fmt.Sprintf("for i in $(seq %d); do sbatch --quiet -w n2 -o /dev/null --exclusive "+
			"--gres=mig:7g.40gb:1 --wrap 'sleep 900' || exit 1; done", jobs))
	}
	fmt.Printf("\nslurmctld's CPU time for a command, with %d nodes and %d waiting jobs:\n", nodes, jobs)
	for _, k := range []struct{ what, command string }{
		{"an agent reads its node", "caelum-show node n1"},
		{"the same with scontrol", "scontrol -d show node n1"},
		{"the watcher lists the nodes", "scontrol -d show node"},
		{"the watcher lists the jobs", "squeue -h -a -t all -o %i"},
		{"an agent reads slurm.conf", "scontrol show config"},
		{"the prolog reads its job", "squeue -h -a -t all -j 1 -o %i"},
		{"the prolog reads its GRES", "caelum-show job 1"},
		{"the same with scontrol", "scontrol -d show job 1"},
		{"an agent writes its totals", "scontrol update nodename=n1 extra=x"},
	} {
		const times = 40
		before, began := cpuTime(do), time.Now()
		do("sh", "-c", fmt.Sprintf("for i in $(seq %d); do %s >/dev/null || exit 1; done", times, k.command))
		took := time.Since(began)
		fmt.Printf("  %-30s %7.2f ms, %6.1f ms until the command ends: %s\n", k.what,
			(cpuTime(do)-before).Seconds()*1000/times, took.Seconds()*1000/times, k.command)
	}
	return err
}

// doer returns a function that runs a command as root and returns its output. It adds the error of a failed command to
// err.
func doer(ctx context.Context, c *cluster.Cluster, err *error) func(args ...string) string {
	return func(args ...string) string {
		out, stderr, failure := c.Exec(ctx, "root", args...)
		if failure != nil {
			*err = errors.Join(*err, fmt.Errorf("%q: %w: %s", args, failure, stderr))
		}
		return out
	}
}

// upWithRecords starts a cluster with two running nodes, which have eight GPUs each, and adds records of nodes that do
// not run until the cluster has the given number of nodes. It starts 24 jobs with one slice each on n1 and copies the
// state that n1's agent then publishes to the added records. The last arguments are added to slurm.conf.
func upWithRecords(
	ctx context.Context, config string, nodes int, more ...string,
) (*cluster.Cluster, func() error, error) {
	others := namesOfRecords(nodes - 2)
	conf := append([]string{scenarioConf, recordsConf(others)}, more...)
	c, down, err := up(ctx, config, cluster.Options{Nodes: 2, GPUs: 8, Conf: conf})
	if err != nil {
		return nil, nil, err
	}
	do := doer(ctx, c, &err)
	for k := range 24 {
		profile := []string{"1g.5gb", "2g.10gb", "3g.20gb"}[k%3]
		do("sbatch", "--quiet", "-w", "n1", "-o", "/dev/null", "--gres=gpu:1", "--mig="+profile, "--wrap", "sleep 900")
	}
	time.Sleep(15 * time.Second)
	record := do("scontrol", "-d", "show", "node", "n1")
	do("scontrol", "update", "nodename="+others, "extra="+extraIn(record))
	if err != nil {
		return nil, nil, errors.Join(err, down())
	}
	return c, down, nil
}

// extraIn returns the Extra of a node in the output of scontrol.
func extraIn(record string) string {
	_, extra, _ := strings.Cut(record, "Extra=")
	extra, _, _ = strings.Cut(extra, "\n")
	return extra
}

// namesOfRecords returns the names of the given number of nodes that do not run, as a host list.
func namesOfRecords(n int) string { return fmt.Sprintf("x[1-%d]", n) }

// recordsConf returns the line in slurm.conf for nodes that do not run and have eight GPUs each.
func recordsConf(names string) string {
	const gres = "gpu:a100:56,mig:1g.5gb:0,mig:1g.10gb:0,mig:2g.10gb:0,mig:3g.20gb:0,mig:4g.20gb:0,mig:7g.40gb:0," +
		"mig:closed:224"
	return "NodeName=" + names + " NodeAddr=127.0.0.1 CPUs=64 RealMemory=256000 State=UNKNOWN Gres=" + gres
}
