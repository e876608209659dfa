package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// A preemptionCase is one row of the comparison: the jobs that are running, and a job that might preempt them. Each
// node has one GPU, which is divided into two 3g.20gb slices. With static slices, the preemptor requests both of them.
// With Caelum, it requests a 7g.40gb slice, which occupies the same units.
type preemptionCase struct {
	name    string
	victims []preemptionJob
	by      preemptionJob
	half    bool // the preemptor needs only one of the two slices (with Caelum, a 4g.20gb)
}

// preemptionJob is a job with a preemption class (a partition or a QOS) and further arguments for sbatch.
type preemptionJob struct {
	class string
	args  []string
}

const (
	// graceTime is the GraceTime of the classes regrace and cangrace.
	graceTime = "5"
	// exempt is the PreemptExemptTime of the class exempt.
	exempt = "00:00:10"
	// startsIn is the time limit for the start of a preemptor. If it is exceeded, the table shows the preemptor as
	// waiting. The limit is longer than exempt and graceTime.
	startsIn = 45 * time.Second
)

// on1 excludes the second node, so that a job runs on the first one.
var on1 = []string{"-x", "n2"}

func twoOf(class string, args ...string) []preemptionJob {
	j := preemptionJob{class, append(slices.Clone(on1), args...)}
	return []preemptionJob{j, j}
}

var preemptionCases = []preemptionCase{
	{name: "REQUEUE", victims: twoOf("requeue"), by: preemptionJob{"high", on1}},
	{name: "REQUEUE, jobs with --no-requeue", by: preemptionJob{"high", on1},
		victims: twoOf("requeue", "--no-requeue")},
	{name: "REQUEUE with GraceTime", victims: twoOf("regrace"), by: preemptionJob{"high", on1}},
	{name: "CANCEL", victims: twoOf("cancel"), by: preemptionJob{"high", on1}},
	{name: "CANCEL with GraceTime", victims: twoOf("cangrace"), by: preemptionJob{"high", on1}},
	{name: "PreemptExemptTime", victims: twoOf("exempt"), by: preemptionJob{"high", on1}},
	{name: "an array is preempted", by: preemptionJob{"high", on1},
		victims: []preemptionJob{{"requeue", append([]string{"--array=0-1"}, on1...)}}},
	{name: "an array preempts", by: preemptionJob{"high", []string{"--array=0-1"}},
		victims: append(twoOf("requeue"), twoOf("requeue", "-x", "n1")...)},
	{name: "a job on two nodes preempts", by: preemptionJob{"high", []string{"-N", "2"}},
		victims: append(twoOf("cancel"), twoOf("cancel", "-x", "n1")...)},
	{name: "a job on two nodes is preempted", by: preemptionJob{"high", on1},
		victims: []preemptionJob{{"cancel", []string{"-N", "2"}}, {"cancel", []string{"-N", "2"}}}},
	{name: "one of two jobs is sufficient", victims: twoOf("requeue"), by: preemptionJob{"high", on1}, half: true},
	{name: "one of two jobs must not be preempted", by: preemptionJob{"high", on1},
		victims: []preemptionJob{{"requeue", on1}, {"off", on1}}},
	{name: "the same tier or QOS", victims: twoOf("requeue"), by: preemptionJob{"requeue", on1}},
	{name: "a het job preempts", victims: append(twoOf("requeue"), twoOf("requeue", "-x", "n1")...),
		by: preemptionJob{"high", []string{":"}}},
}

// preemptionWay is one of the two clusters that are compared.
type preemptionWay struct {
	caelum bool
	kind   string // PreemptType
	c      *cluster.Cluster
}

const preemptionConfig = "planner: true\npreempt: true\npoll_interval: 5s\nwake_port: 6873\nlearn: false\n" +
	"log_format: json\n" +
	"sizing: tightest\n"

// benchPreemption runs the same cases concurrently on two clusters: one with static slices, on which slurmctld preempts
// jobs, and one with Caelum. It prints a table of the jobs' states according to sacct and the waits of the preemptors.
func benchPreemption(ctx context.Context, kind string) error {
	var results [2][]preemptionResult
	var failed [2]error
	var all sync.WaitGroup
	for k := range results {
		all.Go(func() {
			w := preemptionWay{caelum: k == 1, kind: kind}
			if results[k], failed[k] = w.run(ctx); failed[k] != nil {
				failed[k] = fmt.Errorf("with Caelum %v: %w", w.caelum, failed[k])
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return err
	}
	fmt.Printf("| preempt/%s | static slices | Caelum | wait: static | Caelum | after the last epilog: static | "+
		"Caelum |\n|---|---|---|---|---|---|---|\n", kind)
	for k, c := range preemptionCases {
		stock, caelum := results[0][k], results[1][k]
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", c.name, stock.jobs, caelum.jobs, stock.wait, caelum.wait,
			stock.room, caelum.room)
	}
	return nil
}

// run starts the cluster and runs all cases.
func (w *preemptionWay) run(ctx context.Context) (all []preemptionResult, err error) {
	const nodes = " Nodes=n[1-2],mig-catalog[1-2] MaxTime=INFINITE State=UP"
	conf := []string{
		scenarioConf + ",sched_min_interval=0,batch_sched_delay=0", "SlurmctldDebug=debug2", "KillWait=2",
		"PreemptType=preempt/" + w.kind, "PreemptMode=REQUEUE",
	}
	if w.kind == "partition_prio" {
		conf = append(conf, "PartitionName=high PriorityTier=10"+nodes,
			"PartitionName=requeue"+nodes, "PartitionName=regrace GraceTime="+graceTime+nodes,
			"PartitionName=cancel PreemptMode=CANCEL"+nodes,
			"PartitionName=cangrace PreemptMode=CANCEL GraceTime="+graceTime+nodes,
			"PartitionName=off PreemptMode=OFF"+nodes)
	}
	if w.kind == "qos" {
		conf = append(conf, "PartitionName=any"+nodes)
	}
	var down func() error
	w.c, down, err = up(ctx, preemptionConfig, cluster.Options{Nodes: 2, GPUs: 1, NoAgent: !w.caelum, Conf: conf})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, down()) }()
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	for _, c := range preemptionCases {
		r, err := w.try(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// prepare creates the QOS and, without Caelum, the static slices.
func (w *preemptionWay) prepare(ctx context.Context) error {
	commands := [][]string{
		{"sacctmgr", "-i", "add", "qos", "exempt", "PreemptMode=requeue", "PreemptExemptTime=" + exempt},
	}
	if w.kind == "qos" {
		for _, qos := range []string{
			"requeue PreemptMode=requeue", "regrace PreemptMode=requeue GraceTime=" + graceTime,
			"cancel PreemptMode=cancel", "cangrace PreemptMode=cancel GraceTime=" + graceTime,
			"off PreemptMode=requeue", "high Preempt=requeue,regrace,cancel,cangrace,exempt",
		} {
			commands = append(commands, append([]string{"sacctmgr", "-i", "add", "qos"}, strings.Fields(qos)...))
		}
	}
	if !w.caelum {
		for _, node := range []string{"n1", "n2"} {
			gres := "gres=gpu:a100:7,mig:3g.20gb:2"
			commands = append(commands, []string{"scontrol", "update", "nodename=" + node, gres})
		}
	}
	for _, command := range commands {
		if _, stderr, err := w.c.Exec(ctx, "root", command...); err != nil {
			return fmt.Errorf("%v: %w: %s", command, err, stderr)
		}
	}
	if w.caelum {
		return w.c.RestartUnit("watcher") // it reads the QOS when it starts
	}
	return nil
}

// submit submits a job that requests count slices of the given profile on each of its nodes.
func (w *preemptionWay) submit(ctx context.Context, j preemptionJob, profile string, count int) (string, error) {
	class := []string{"-p", j.class}
	switch {
	case w.kind == "qos":
		// Caelum holds jobs that exclude nodes, except in partitions that the decision table does not list. Held jobs
		// do not preempt other jobs.
		class = []string{"-p", "any", "--qos=" + j.class}
	case j.class == "exempt": // even with preempt/partition_prio, only a QOS can set the exempt time
		class = []string{"-p", "requeue", "--qos=exempt"}
	}
	one := append(class, fmt.Sprintf("--gres=gpu:%d,mig:%s:%d", count, profile, count))
	args := append([]string{"sbatch", "--parsable", "-o", "/dev/null", "-t", "30"}, one...)
	if slices.Equal(j.args, []string{":"}) { // two components
		args = append(append(args, ":"), one...)
	} else {
		args = append(args, j.args...)
	}
	out, stderr, err := w.c.Exec(ctx, "user1", append(args, "--wrap", "sleep 600")...)
	if err != nil {
		return "", fmt.Errorf("sbatch: %w: %s", err, stderr)
	}
	return strings.TrimSpace(out), nil
}

// try runs one case.
func (w *preemptionWay) try(ctx context.Context, c preemptionCase) (r preemptionResult, err error) {
	var victims []string
	for _, v := range c.victims {
		id, err := w.submit(ctx, v, "3g.20gb", 1)
		if err != nil {
			return r, err
		}
		victims = append(victims, id)
	}
	if err := w.running(ctx, victims, 2*time.Minute); err != nil {
		return r, err
	}
	before, err := w.c.Log("slurmctld")
	if err != nil {
		return r, err
	}
	profile, count := "3g.20gb", 2
	switch {
	case w.caelum && c.half:
		profile, count = "4g.20gb", 1
	case w.caelum:
		profile, count = "7g.40gb", 1
	case c.half:
		count = 1
	}
	by, err := w.submit(ctx, c.by, profile, count)
	if err != nil {
		return r, err
	}
	starts := w.running(ctx, []string{by}, startsIn) == nil
	if r, err = w.result(ctx, len(before), victims, by, starts); err != nil {
		return r, err
	}
	fmt.Fprintf(os.Stderr, "%s, Caelum %v: %s: %+v\n", w.kind, w.caelum, c.name, r)
	if _, _, err := w.c.Exec(ctx, "root", "scancel", "-u", "user1"); err != nil {
		return r, err
	}
	return r, gone(ctx, w.c, 500*time.Millisecond)
}

// running waits until all jobs, with all tasks or components, are running.
func (w *preemptionWay) running(ctx context.Context, ids []string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(300 * time.Millisecond) {
		list := strings.Join(ids, ",")
		out, stderr, err := w.c.Exec(ctx, "root", "squeue", "-h", "-r", "-t", "all", "-j", list, "-o", "%T")
		if err != nil {
			return fmt.Errorf("squeue: %w: %s", err, stderr)
		}
		if states := slices.Compact(strings.Fields(out)); slices.Equal(states, []string{"RUNNING"}) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the jobs %v are not running: %s", ids, out)
		}
	}
}
