package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

// speedWays lists the configurations that benchSpeeds compares.
var speedWays = []speedWay{
	{"whole GPUs", "whole", ""},
	{"best fixed layouts", "static", ""},
	{"Caelum, tightest", "caelum", "tightest"},
	{"Caelum, adaptive", "caelum", "adaptive"},
}

// speedWay is one of the configurations that benchSpeeds compares. Its scenario is the argument of subcluster.asks, and
// its sizing is the value of the `sizing` key in caelum.yaml, or empty for a cluster without Caelum.
type speedWay struct{ name, scenario, sizing string }

// speedConf holds the scheduler parameters from docs/install.md. Backfill runs every 2 s, because the trace's jobs
// are much shorter than real jobs.
const speedConf = "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0," +
	"bf_interval=2,bf_continue,bf_hetjob_prio=min"

// slowest is the longest acceptable run time of a job, as a multiple of its run time on a whole GPU. It corresponds to
// the `max_slowdown` key in caelum.yaml.
const slowest = 3

// benchSpeeds runs the same trace in each of speedWays. Unlike in benchScenarios, a job's run time depends on its
// slice.
func benchSpeeds(ctx context.Context, s scenarios, together bool) error {
	b, busy, err := s.speedSubcluster()
	if err != nil {
		return err
	}
	fmt.Printf(
		"\nOne trace of %d jobs whose run times depend on the slice, load %.2f of whole GPUs, mean run time on a "+
			"whole GPU %.0f s, seed %d, on %d nodes of %d GPUs; the best fixed layouts: %s\n",
		s.jobs, s.load, s.mean, s.seed, s.nodes, s.gpus, b.static.Names(b.Model),
	)
	texts, errs := make([]string, len(speedWays)), make([]error, len(speedWays))
	var wg sync.WaitGroup
	for k, way := range speedWays {
		run := func() {
			r := speedRun{scenarios: s, speedWay: way, subcluster: b, busy: busy}
			if texts[k], errs[k] = r.run(ctx); errs[k] != nil {
				errs[k] = fmt.Errorf("%s: %w", way.name, errs[k])
			}
		}
		if together {
			wg.Go(run)
		} else {
			run()
		}
	}
	wg.Wait()
	fmt.Printf("  %-20s %10s %10s %10s %10s %9s %12s %8s\n", "TURNAROUND", "MEAN", "MEDIAN", "P95", "MEAN WAIT",
		"MAKESPAN", "UTILISATION", "LARGER")
	fmt.Print(strings.Join(texts, ""))
	return errors.Join(errs...)
}

// speedSubcluster returns the trace, the busy shares of its jobs, and the best fixed layouts for the trace. The jobs
// arrive as a Poisson process. Their run times on a whole GPU are exponentially distributed, but at least 1 s. Each job
// needs the memory of a random profile. The busy shares have the density 4 b^3 (predict.UnknownBusy). A job requests
// the smallest profile that has enough memory and on which its run time is at most slowest times its run time on a
// whole GPU.
func (s scenarios) speedSubcluster() (b *subcluster, busy []float64, err error) {
	of, err := mig.ModelByName("A100-40GB")
	if err != nil {
		return nil, nil, err
	}
	b = &subcluster{Model: of.Select(mig.Plain)}
	for n := range s.nodes {
		b.nodes = append(b.nodes, fmt.Sprint("n", n+1))
	}
	rng := rand.New(rand.NewPCG(s.seed, 1))
	at := 0.0
	for k := range s.jobs {
		at += rng.ExpFloat64() * s.mean / (s.load * float64(s.nodes*s.gpus))
		share := math.Pow(rng.Float64(), 0.25)
		j := trace.Job{
			ID:        strconv.Itoa(k + 1),
			Submit:    at,
			Duration:  max(1, s.mean*rng.ExpFloat64()),
			MemoryMiB: b.Profiles[rng.IntN(len(b.Profiles))].Memory(),
			Speed:     map[string]float64{},
			Slowest:   1.0 / slowest,
		}
		for _, p := range b.Profiles {
			if p.Memory() >= j.MemoryMiB {
				j.Speed[p.Name] = predict.Slowdown(share, b.Compute(), p.Compute)
			}
		}
		j.Profile, _ = j.On(b.Model)
		b.work, busy = append(b.work, j), append(busy, share)
	}
	return b, busy, b.searchFixed(s.nodes * s.gpus)
}

// searchFixed sets static to the fixed layouts with which the trace has the shortest mean turnaround in the simulator.
// Unlike in sim.BestStatic, a job can use only slices of the requested profile, as in Slurm. searchFixed tries each
// maximal layout both on all GPUs and combined with whole GPUs in several ratios.
func (b *subcluster) searchFixed(gpus int) error {
	whole, _ := sim.OneInstance(b.Model)
	patterns := []sim.Pattern{{whole}}
	for _, l := range b.Maximal() {
		one := append(sim.Pattern{whole}, slices.Repeat(sim.Pattern{l}, gpus-1)...)
		all := append(sim.Pattern{l}, slices.Repeat(sim.Pattern{whole}, gpus-1)...)
		patterns = append(patterns, sim.Pattern{l}, sim.Pattern{whole, l}, sim.Pattern{whole, whole, l},
			sim.Pattern{whole, l, l}, one, all)
	}
	best, least := patterns[0], math.Inf(1)
	for _, p := range patterns {
		b.static = p
		var work []trace.Job
		for _, j := range b.work {
			if profile, err := b.asks("static", j); err == nil {
				j.Speed, j.Profile = map[string]float64{profile: j.Speed[profile]}, profile
				work = append(work, j)
			}
		}
		if len(work) < len(b.work) {
			continue // a job is too large for the layouts
		}
		r, err := sim.Run(sim.Config{
			GPUs: slices.Repeat([]*mig.Model{b.Model}, gpus), Static: p.Deal(gpus), Discipline: sim.EASY,
			Estimate: func(j trace.Job) float64 { return speedLimit(j, j.Profile) },
		}, slices.Values(work))
		if err != nil {
			return err
		}
		if r.MeanTurnaround() < least {
			best, least = p, r.MeanTurnaround()
		}
	}
	b.static = best
	return nil
}

// speedLimit returns the time limit, in seconds, for a job that requests the given profile. The limit exceeds the run
// time by at least 10 s, because job scripts start late on a busy machine.
func speedLimit(j trace.Job, profile string) float64 {
	j.Duration = j.Takes(profile) + 9
	return limit(j)
}

// speedRun is a run of a trace in one configuration.
type speedRun struct {
	scenarios
	speedWay
	subcluster *subcluster
	busy       []float64
	*cluster.Cluster

	asked []string // the profile that Slurm allocates to each job
	ids   []string
	late  time.Duration // the longest delay of a submission
}

func (r *speedRun) run(ctx context.Context) (text string, err error) {
	o := cluster.Options{Nodes: r.nodes, GPUs: r.gpus, NoAgent: r.sizing == "", Conf: []string{speedConf}}
	config := "poll_interval: 1m\nwake_port: 6873\nlearn: false\nlog_format: json\n"
	if r.sizing != "" {
		config += "sizing: " + r.sizing + "\n"
	}
	c, down, err := up(ctx, config, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, down()) }()
	r.Cluster = c
	for _, j := range r.subcluster.work {
		profile, err := r.subcluster.asks(r.scenario, j)
		if err != nil {
			return "", err
		}
		r.asked = append(r.asked, profile)
	}
	if err := r.prepare(ctx); err != nil {
		return "", err
	}
	began := time.Now()
	for k, j := range r.subcluster.work {
		at := began.Add(time.Duration(j.Submit * float64(time.Second)))
		time.Sleep(time.Until(at))
		r.late = max(r.late, time.Since(at))
		if err := r.submit(ctx, k); err != nil {
			return "", err
		}
	}
	if err := gone(ctx, c, time.Second); err != nil {
		return "", err
	}
	return r.report(ctx)
}

// prepare writes either the slice counts of the fixed layouts or the lines for the jobs in the decision table.
func (r *speedRun) prepare(ctx context.Context) error {
	if r.sizing == "" {
		for k, node := range r.subcluster.nodes {
			gres := r.subcluster.fixed(r.scenario, k, r.gpus)
			if _, stderr, err := r.Exec(ctx, "root", "scontrol", "update", "nodename="+node, "gres="+gres); err != nil {
				return fmt.Errorf("%w: %s", err, stderr)
			}
		}
		return nil
	}
	var table strings.Builder
	for k, j := range r.subcluster.work {
		key := predict.Key(predict.KeyInput{
			UID: speedUID, Account: "research", JobName: "job" + j.ID, Script: r.script(j), GPUs: 1, Nodes: 1,
		})
		fmt.Fprintf(&table, "key %d:%s %s %.0f %.0f\n", speedUID, key, j.Profile, max(1, j.Takes(j.Profile)),
			100*r.busy[k])
	}
	cmd := r.Command(ctx, "", "root", "sh", "-c", "cd /etc/caelum && "+
		"{ echo caelum-decisions 1 2; sed 1d decisions; cat; } >decisions.new && mv decisions.new decisions")
	cmd.Stdin = strings.NewReader(table.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't write the decision table: %w: %s", err, out)
	}
	return nil
}

// speedUID is the user id of user1, which is the same in every devcluster.
const speedUID = 20001

// script returns the script of a job. With Caelum, the script reads the profile of its slice from the driver. Without
// Caelum, the cluster does not have emulated GPUs, so SLICE is set on submission instead.
func (r *speedRun) script(j trace.Job) string {
	var takes []string
	for _, p := range r.subcluster.Profiles {
		if j.SpeedOn(p.Name) > 0 {
			takes = append(takes, fmt.Sprintf("[%s]=%.2f", p.Name, j.Takes(p.Name)))
		}
	}
	return fmt.Sprintf(`#!/bin/bash
declare -A takes=(%s)
if [[ -z ${SLICE-} ]]; then
    device=$(cuda-process --exclusive --print) || exit
    SLICE=${device#*profile=}
    SLICE=${SLICE%%%% *}
fi
echo "ran $SLURM_JOB_ID $SLICE"
exec sleep "${takes[$SLICE]:?}"
`, strings.Join(takes, " "))
}

func (r *speedRun) submit(ctx context.Context, k int) error {
	j := r.subcluster.work[k]
	args := []string{"sbatch", "--parsable", "--job-name=job" + j.ID}
	if r.sizing == "" {
		args = append(args, "--gres=gpu:1,mig:"+r.asked[k]+":1", "--export=ALL,SLICE="+r.asked[k])
	} else {
		args = append(args, "--gres=gpu:1")
	}
	args = append(args, fmt.Sprintf("--time=%.0f", speedLimit(j, r.asked[k])/60))
	cmd := r.Command(ctx, "", "user1", args...)
	cmd.Stdin = strings.NewReader(r.script(j))
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	r.ids = append(r.ids, strings.TrimSpace(string(out)))
	return nil
}
