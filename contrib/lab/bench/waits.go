package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// benchWaits measures the time from submission to start of a batch job on an idle cluster, according to slurmctld's
// log. The jobs alternately request a profile that is on offer and a profile that is not. Each job is submitted at a
// random time within slurmctld's one-second cycle. In the first measurement, a watcher is running and the agents poll
// once an hour. In the second measurement, there is no watcher and the agents poll every 15 seconds. Because this is
// slow, the second measurement uses only a tenth of the jobs. If there is more than one node, the watcher is a planner,
// and there is only one measurement.
func benchWaits(ctx context.Context, pairs, nodes int) error {
	if pairs == 0 {
		return nil
	}
	fmt.Printf(
		"\nTime from submission to start, %d jobs whose profile is on offer and %d jobs whose profile is not:\n",
		pairs,
		pairs,
	)
	if nodes > 1 {
		name := fmt.Sprintf("%d nodes with a planner", nodes)
		return waits(ctx, pairs, nodes, name, "wake_port: 6873\nlearn: false\nplanner: true\n")
	}
	return errors.Join(
		waits(ctx, pairs, 1, "with a watcher", "poll_interval: 1h\nwake_port: 6873\nlearn: false\n"),
		waits(ctx, (pairs+9)/10, 1, "no watcher, polls every 15 s, for a tenth of the jobs", "poll_interval: 15s\n"),
	)
}

func waits(ctx context.Context, pairs, nodes int, name, config string) (err error) {
	const conf = "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0," +
		"bf_continue,bf_hetjob_prio=min,bf_interval=1"
	c, down, err := up(ctx, config, cluster.Options{Nodes: nodes, GPUs: 1, Conf: []string{conf}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	if nodes > 1 {
		time.Sleep(untilPolled)
	}
	var w waitTimes
	for range pairs {
		if err := w.measure(ctx, c, nodes); err != nil {
			return err
		}
	}
	w.print(name)
	return nil
}

// waitTimes holds the jobs' waits from submission to start, in seconds, separately for jobs whose profile was on offer
// and for jobs whose profile was not. For the latter jobs, it also holds the times, in seconds, until the offer was
// published.
type waitTimes struct {
	offered, other, published []float64
	found                     int // number of jobs in offered whose profile slurmctld also showed as free
}

// measure submits one job whose profile is on offer and one job whose profile is not. The agent offers an idle GPU as
// small slices, because the jobs request small slices twice as often. With several nodes, each profile is offered on
// only one node, so the last job requests a different node.
func (w *waitTimes) measure(ctx context.Context, c *cluster.Cluster, nodes int) error {
	for k, profile := range []string{"1g.5gb", "1g.5gb", "7g.40gb"} {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		submit := []string{"sbatch", "--parsable", "-o", "/dev/null", "--gres=mig:" + profile + ":1", "--wrap", "true"}
		node := "n1"
		switch {
		case k == 0:
			on, _, err := nodesOffering(ctx, c, profile)
			if err != nil {
				return err
			}
			w.found += min(len(on), 1)
		case k == 2 && nodes > 1:
			_, others, err := nodesOffering(ctx, c, profile)
			if err != nil {
				return err
			}
			if len(others) == 0 {
				return fmt.Errorf("every node offers %s", profile)
			}
			node = others[rand.IntN(len(others))]
			submit = slices.Insert(submit, 1, "-w", node)
		}
		out, stderr, err := c.Exec(ctx, "root", submit...)
		if err != nil {
			return fmt.Errorf("sbatch: %w: %s", err, stderr)
		}
		if err := gone(ctx, c, 50*time.Millisecond); err != nil {
			return err
		}
		waited, publishing, err := started(c, strings.TrimSpace(out), profile, node)
		if err != nil {
			return err
		}
		switch k {
		case 0: // the previous job has used and released the whole GPU
			w.offered = append(w.offered, waited)
		case 2:
			w.other, w.published = append(w.other, waited), append(w.published, publishing)
		}
	}
	return nil
}

// nodesOffering returns the nodes that offer a profile and the other nodes, according to slurmctld.
func nodesOffering(ctx context.Context, c *cluster.Cluster, profile string) (on, others []string, err error) {
	out, _, err := c.Exec(ctx, "root", "scontrol", "-o", "show", "node")
	offers := regexp.MustCompile(` Gres=\S*mig:` + regexp.QuoteMeta(profile) + `:[1-9]`)
	for _, m := range regexp.MustCompile(`(?m)^NodeName=(\S+) .*`).FindAllStringSubmatch(out, -1) {
		if offers.MatchString(m[0]) {
			on = append(on, m[1])
		} else {
			others = append(others, m[1])
		}
	}
	return on, others, err
}

func (w *waitTimes) print(name string) {
	on, off := w.offered, w.other
	low, high := apart(on, off)
	fmt.Printf(
		"  %s: medians %.2f and %.2f s, difference %+.2f s (95%% interval %+.2f to %+.2f); "+
			"p99 %.2f and %.2f s, longest %.2f and %.2f s\n",
		name, median(on), median(off), median(off)-median(on), low, high,
		high99(on), high99(off), slices.Max(on), slices.Max(off),
	)
	fmt.Printf("    the profile was offered for %d of %d jobs;", w.found, len(on))
	fmt.Printf(
		" for the other jobs, from submission to publication: median %.3f s, p99 %.3f s, longest %.3f s\n",
		median(w.published), high99(w.published), slices.Max(w.published),
	)
}

// gone waits until the queue is empty.
func gone(ctx context.Context, c *cluster.Cluster, every time.Duration) error {
	for {
		out, _, err := c.Exec(ctx, "root", "squeue", "-h")
		if err != nil || strings.TrimSpace(out) == "" {
			return err
		}
		time.Sleep(every)
	}
}

// started returns the time, in seconds, that a job waited before it started, according to slurmctld's log. If the job's
// profile was not on offer at its submission, started also returns the time until the node offered it.
func started(c *cluster.Cluster, id, profile, node string) (start, published float64, err error) {
	log, err := c.Log("slurmctld")
	if err != nil {
		return 0, 0, err
	}
	log = log[max(0, strings.Index(log, "_slurm_rpc_submit_batch_job: JobId="+id+" ")-100):]
	at := func(what string) (time.Time, error) {
		line := regexp.MustCompile(`(?m)^\[([^\]]+)\] .*(?:` + what + `)`).FindStringSubmatch(log)
		if line == nil {
			return time.Time{}, fmt.Errorf("slurmctld's log does not contain %s", what)
		}
		return time.Parse("2006-01-02T15:04:05.000", line[1])
	}
	submitted, err1 := at(`_slurm_rpc_submit_batch_job: JobId=` + id + ` `)
	begun, err2 := at(`(?:Allocate|Started) JobId=` + id + `\b`)
	offer := `mig:` + regexp.QuoteMeta(profile) + `:[1-9]`
	offered, err3 := at(`_update_node_gres: nodes ` + node + ` gres set to: .*` + offer)
	if profile == "1g.5gb" {
		offered, err3 = submitted, nil
	}
	return begun.Sub(submitted).Seconds(), offered.Sub(submitted).Seconds(), errors.Join(err1, err2, err3)
}

func high99(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, len(s)*99/100)]
}

// apart returns the 95% bootstrap confidence interval of the difference between two medians.
func apart(a, b []float64) (low, high float64) {
	again := func(v []float64) float64 {
		w := make([]float64, len(v))
		for i := range w {
			w[i] = v[rand.IntN(len(v))]
		}
		return median(w)
	}
	var d []float64
	for range 2000 {
		d = append(d, again(b)-again(a))
	}
	slices.Sort(d)
	return d[len(d)*25/1000], d[len(d)*975/1000]
}
