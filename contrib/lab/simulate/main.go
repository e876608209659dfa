package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"caelum/contrib/lab/papers"
	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/trace"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// options holds the values of the flags.
type options struct {
	churn, alibaba, grmu, sacct string
	miso, misoSteps             string
	every, mean                 time.Duration
	slowdown, load              float64
	jobs                        int
	seed                        uint64

	gpus, profiles, policies  list
	perNode                   int
	queue, ends               string
	offers                    bool
	sizing, static            string
	speeds                    bool // true if the workload's jobs have speeds
	memoryError, memoryMargin float64
	create, destroy           time.Duration
	wholeGPUs, multiGPU       bool
	change                    time.Duration // --switch
	wholeShare                float64
	moves, moveCost           string
	deadlines                 float64
	deadlineSlack             string
	deadlineUse               string
	equalPriority, stay       bool
}

// list is a flag with comma-separated values.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements [flag.Value].
func (l *list) Set(text string) error {
	*l = strings.Split(text, ",")
	return nil
}

func (o *options) addFlags(f *flag.FlagSet) {
	f.StringVar(&o.churn, "churn", "", "synthetic workload of this `mix`: uniform6, skew-small, bimodal or four-equal")
	f.StringVar(&o.alibaba, "alibaba", "", "pod list from Alibaba's gpu-v2023 trace (openb_pod_list_*.csv). Each pod "+
		"with one GPU is a job, which needs the smallest profile that is at least as large as its share of a GPU")
	f.BoolVar(&o.multiGPU, "multi-gpu", false, "--alibaba: include the pods with several GPUs, which need full GPUs "+
		"on one node; requires --whole-gpus")
	f.StringVar(&o.grmu, "grmu", "",
		"pod list as for --alibaba, with the profiles of the GRMU paper (arXiv 2502.01909)")
	f.StringVar(&o.miso, "miso", "", "the MISO paper's training jobs (arXiv 2207.11428, jobs_100.csv)")
	f.StringVar(&o.misoSteps, "miso-steps", "", "--miso: file with the step times (a100_40gb_mig_step_time.csv)")
	f.DurationVar(&o.every, "every", time.Minute, "--miso: mean time between submissions")
	f.Float64Var(&o.slowdown, "slowdown", 0,
		"--miso: the longest acceptable run time, as a multiple of the run time on a whole GPU; 0: no limit")
	f.StringVar(&o.sacct, "sacct", "", "file with the output of sacct -P, as for caelum simulate")
	f.IntVar(&o.jobs, "jobs", 4000, "--churn: number of jobs")
	f.Float64Var(&o.load, "load", 0.85, "--churn: mean share of all units that jobs request")
	f.DurationVar(&o.mean, "mean", time.Hour, "--churn: mean run time of the jobs")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random numbers")
	o.gpus = list{"A100-40GB:16"}
	f.Var(&o.gpus, "gpus", "the cluster: `BOARD:COUNT`,...")
	f.IntVar(&o.perNode, "per-node", 0, "number of GPUs in each node; 0: a job's slices can be on any GPUs")
	f.Var(&o.profiles, "profiles", "profiles to use; all: every profile; default: the profiles without variants")
	f.Var(&o.policies, "policies", "policies to compare: the placement policies, whole, static, or moved, which is a "+
		"reference that can move running jobs at any time and at no cost; default: whole, static, reach and lifetime, "+
		"as far as the other options allow it")
	f.StringVar(&o.static, "static", "", "layouts for the static policy, as for caelum simulate")
	f.StringVar(&o.queue, "queue", "fifo", "fifo; easy; none; skip: jobs that do not fit are skipped; smallest: the "+
		"smallest job that fits starts first; batches: of the first jobs, the group that makes the best use of one "+
		"GPU starts (DynaP)")
	f.BoolVar(&o.offers, "offers", false, "policies act through offers to slurmctld; requires --queue fifo or easy")
	f.StringVar(&o.sizing, "sizing", "", "--miso: adaptive or tightest; default: adaptive with --queue fifo or easy")
	f.StringVar(&o.ends, "ends", "exact", "exact, limits, limits=A-B, corrected, corrected=A-B or error=S: expected "+
		"run times, which corrected and error correct by the run times of ended jobs")
	o.addComparisons(f)
}

func (o *options) addComparisons(f *flag.FlagSet) {
	f.Float64Var(&o.memoryError, "memory-error", 0, "jobs request a predicted amount of memory with this lognormal "+
		"error, and are requeued with the next larger profile if they run out of it; 0: no predictions")
	f.Float64Var(&o.memoryMargin, "memory-margin", 0.1, "--memory-error: margin, as a share of the prediction")
	f.BoolVar(&o.stay, "stay", false, "jobs never end; requires --queue none")
	f.DurationVar(&o.create, "create", 0, "time to create an instance (on an A100: 160ms to 240ms); "+
		"if --create or --destroy is not 0, instances remain when their jobs end")
	f.DurationVar(&o.destroy, "destroy", 0, "time to destroy an instance (on an A100: 200ms to 220ms)")
	f.BoolVar(&o.wholeGPUs, "whole-gpus", false, "allow GPUs to be full (MIG mode off) instead of holding slices")
	f.DurationVar(&o.change, "switch", 0, "--whole-gpus: time to switch the MIG mode of a GPU")
	f.Float64Var(&o.wholeShare, "whole-share", 0, "--whole-gpus: largest share of the GPUs that may be full while "+
		"jobs wait for slices; 0: automatic; 1: no limit")
	f.StringVar(&o.moves, "moves", "", "move or stop running jobs that have one slice: fragaware: after a job has "+
		"ended, to reduce fragmentation (arXiv 2512.16099); grmu: when a job cannot start, and once an hour (arXiv "+
		"2502.01909); dynap[=SECONDS]: if the first job would otherwise wait longer than the stopped jobs lose, where "+
		"SECONDS is added to the wait; requeue: the watcher's rule, like dynap, but only jobs that fit elsewhere are "+
		"stopped")
	f.StringVar(&o.moveCost, "move-cost", wholeRun,
		"--moves: the maximum run time that a moved or stopped job loses, or run for its whole run")
	f.Float64Var(&o.deadlines, "deadlines", 0, "share of the jobs that have a deadline; requires --queue fifo or easy")
	f.StringVar(&o.deadlineSlack, "deadline-slack", "0-2",
		"--deadlines: longest wait after which a job still meets its deadline, as a multiple of its time limit")
	f.StringVar(&o.deadlineUse, "deadline-use", "plan", "--deadlines: plan: slurmctld removes a job after its latest "+
		"start, and the plan helps jobs to meet their deadlines; slurm: only slurmctld knows the deadlines; "+
		"none: neither")
	f.BoolVar(&o.equalPriority, "equal-priority", false, "--deadlines: all jobs have the same priority")
}

func run(args []string, w io.Writer) error {
	var o options
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := o.checkFlags(f); err != nil {
		return err
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.policies, err = o.checkPolicies(c.GPUs); err != nil {
		return err
	}
	workload, err := o.fitting(c)
	if err != nil {
		return err
	}
	o.speeds = slices.ContainsFunc(workload.Jobs, func(j trace.Job) bool { return j.Speed != nil })
	var results []result
	for _, name := range o.policies {
		r, err := o.simulate(c, name, workload.Jobs)
		if errors.Is(err, sim.ErrNever) { // another policy may be able to start the job
			r, err = result{never: err.Error(), Result: &sim.Result{}}, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.policy = name
		results = append(results, r)
	}
	return print(w, results)
}

// simulate simulates the jobs with one policy.
func (o options) simulate(c sim.Config, name string, jobs []trace.Job) (r result, err error) {
	c.Offers = o.offers && name != moved
	order := orders[o.queue]
	switch {
	case o.queue == "batches":
		c.Scheduler = papers.Batches
	case order != nil:
		c.Scheduler = papers.Ordered(order)
	}
	switch name {
	case moved:
		c.Scheduler = papers.Moved(order)
	case "whole":
		for _, b := range c.GPUs {
			whole, ok := sim.OneInstance(b)
			if b.Full() != 0 {
				whole, ok = b.Full(), true // a full GPU is also sufficient for a job that needs a slice
			}
			if !ok {
				return r, fmt.Errorf("--profiles: no profile of %s occupies a whole GPU", b.Name)
			}
			c.Static = append(c.Static, whole)
		}
	case "static":
		p, err := o.pattern(c, jobs)
		if err != nil {
			return r, err
		}
		r.layouts, c.Static = p.Names(c.GPUs[0]), p.Deal(len(c.GPUs))
	default:
		if c.Policy, err = place.ByName(name); err != nil {
			return r, err
		}
		c.WholeShare = o.wholeShare
		if moves, _ := o.parseMoves(c.GPUs); moves != nil {
			c.Scheduler, c.Moves = moves.Scheduler, true
		}
		if o.speeds && o.adaptive() {
			c.Sizing = sim.Adaptive
		}
	}
	r.Result, err = sim.Run(c, slices.Values(jobs))
	return r, err
}

// pattern returns the layouts for the static policy: those given by --static, or the best ones found by sim.BestStatic.
func (o options) pattern(c sim.Config, jobs []trace.Job) (sim.Pattern, error) {
	if o.static != "" {
		return sim.ParsePattern(c.GPUs[0], o.static)
	}
	return sim.BestStatic(c, jobs, func(a, b *sim.Result) bool {
		if c.Discipline == sim.Loss {
			return a.Accepted() > b.Accepted()
		}
		return a.MeanTurnaround() < b.MeanTurnaround()
	}, nil)
}

// fitting returns the workload without the jobs that cannot run on the cluster, which it counts on standard error. It
// returns an error if no jobs remain, or if an option requires data that the jobs do not have.
func (o options) fitting(c sim.Config) (*trace.Workload, error) {
	workload, err := o.workload(len(c.GPUs))
	if err != nil {
		return nil, err
	}
	nodes, first := [][]*mig.Model{c.GPUs}, 0
	if c.Nodes != nil {
		nodes = nil
	}
	for _, n := range c.Nodes {
		nodes = append(nodes, c.GPUs[first:first+n])
		first += n
	}
	workload.Only(nodes, c.Nodes == nil)
	for _, l := range workload.Left {
		fmt.Fprintf(os.Stderr, "omitted jobs: %d (%s)\n", l.Jobs, l.Reason)
	}
	limited := func(j trace.Job) bool { return j.Limit > 0 }
	switch {
	case len(workload.Jobs) == 0:
		return nil, errors.New("no jobs to simulate")
	case (o.ends == "limits" || o.ends == "corrected") && !slices.ContainsFunc(workload.Jobs, limited):
		return nil, fmt.Errorf("--ends %s: the jobs of this workload have no time limits", o.ends)
	}
	return workload, nil
}
