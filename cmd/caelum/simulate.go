package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"caelum/internal/mig"
	"caelum/internal/place"
	"caelum/internal/report"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

type simulateOptions struct {
	churn, alibaba, grmu, sacct string
	miso, misoSteps             string
	every                       time.Duration
	slowdown                    float64

	fromSacct    bool
	since, until string
	jobs         int
	load         float64
	mean         time.Duration
	seed         uint64

	gpus, profiles, policies []string
	perNode                  int
	queue, ends              string
	offers                   bool
	sizing                   string
	speeds                   bool // true if the workload's jobs have speeds
	static                   string
	memoryError              float64
	memoryMargin             float64
	create, destroy          time.Duration
	wholeGPUs, multiGPU      bool
	change                   time.Duration // --switch
	wholeShare               float64
	moves, moveCost          string
	deadlines                float64
	deadlineSlack            string
	deadlineUse              string
	equalPriority            bool
	csv, stay                bool
	report                   string
}

func newSimulate(g *globals) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate a workload on a cluster under several policies",
		Long: `simulate runs a workload on a simulated cluster of GPUs, under one policy after another, and prints
the jobs' waiting times under each one. The policies use the same code as the agents.

WORKLOADS, exactly one of these
  --churn MIX       synthetic jobs: Poisson arrivals, exponential durations, one slice per job, and
                    the profiles of an A100-40GB (--jobs, --load, --mean, --seed). MIX is uniform6,
                    skew-small, bimodal or four-equal
  --alibaba FILE    a pod list from Alibaba's gpu-v2023 trace (openb_pod_list_*.csv). The jobs are
                    the pods with one GPU. Each job needs the smallest profile that is at least as
                    large as the pod's share of a GPU. With --multi-gpu, a pod with several GPUs
                    becomes a job that needs the same number of full GPUs on one node (with
                    --per-node)
  --grmu FILE       a pod list as for --alibaba, with the profiles that the GRMU paper (arXiv
                    2502.01909) assigns to the pods
  --miso FILE       the training jobs of the MISO paper (arXiv 2207.11428, jobs_100.csv), with the
                    step times measured on each profile (--miso-steps a100_40gb_mig_step_time.csv).
                    A job needs the smallest profile on which it fits and is no slower than
                    --slowdown allows. It runs at the measured speed. --every sets the mean time
                    between submissions
  --from-sacct      the jobs of this site, as reported by sacct (--since, --until). A job needs the
                    profile of the slices that it had. A job without slices needs the smallest
                    profile that is sufficient for the memory and utilisation in its accounting
                    record (gres/gpumem, gres/gpuutil), or a whole GPU if these values are missing
  --sacct FILE      the jobs in a file, as for --from-sacct. The file contains the output of sacct
                    -a -P, without -D, with the columns
                    ` + strings.Join(trace.SacctColumns, ",") + `

POLICIES, any number of these
  first-fit, best-fit, driver, reach, mcc, mecc, fragaware, grmu, lifetime
                    slices are carved when a job starts, at the placement that the policy chooses.
                    fragaware=SHARE sets the load at which a GPU counts as busy (default: 0.4).
                    grmu=SHARE sets the largest share of the GPUs that may have whole-GPU instances
                    (default: 0.3)
  whole             every job gets a whole GPU
  static            all GPUs are partitioned before the first job, into the layouts given by
                    --static or into the best layouts that a search finds for this workload: those
                    with the shortest mean time from submission to end or, without a queue, with the
                    most accepted work. A job gets the smallest free slice that is large enough
  moved             a reference for comparison, which can move running jobs at any time and at no
                    cost. With --queue fifo, no policy can do better, unless jobs run slower on
                    smaller slices (--miso)

QUEUES
  fifo              jobs start in the order of submission. No job starts before an earlier one
  easy              the first job that cannot start gets a reservation. Other jobs may start if they
                    do not delay it
  skip              jobs start in the order of submission, but jobs that do not fit are skipped.
                    Large jobs may wait indefinitely
  smallest          the smallest job that fits starts first
  batches           simulate considers the first 7 waiting jobs (7 is the largest number of
                    instances on a GPU) and starts the group that makes the best use of one GPU
                    (DynaP). Jobs may wait indefinitely. A job whose slices do not fit together on
                    one GPU never starts. The whole, static and moved policies do not support this
                    queue
  none              a job that cannot start when it is submitted is rejected

ENDS, the run times that the policies expect
  exact             the actual run times
  limits            the jobs' time limits, without correction, as in the agents. The policies expect
                    a job without a time limit to run for a very long time
  limits=A-B        a time limit of A to B times the actual run time
  corrected         the jobs' time limits, corrected by the ratio of run time to time limit of the
                    jobs that have ended. The agents do not correct time limits
  corrected=A-B     a time limit of A to B times the actual run time, corrected in the same way
  error=S           a prediction with a lognormal error of S, corrected in the same way

OFFERS
  With --offers, policies act as in production: the agents publish offers 0.1 s after an event, and
  at the next whole second, slurmctld allocates the offered slices to jobs without knowing the
  policy. Of the jobs that could have started when they were submitted, ON OFFER is the share whose
  profile was on offer at that time. With whole and static, slurmctld also starts jobs only at whole
  seconds, but without offers. Without --offers, all jobs start as soon as a job is submitted or
  ends. --offers has no effect on moved.

SIZING, for workloads whose jobs have speeds (--miso)
  adaptive          a job may get a larger slice than it requests, as in production. Requires
                    --queue fifo or easy. The whole, static and moved policies ignore adaptive
  tightest          each job gets the profile that it requests

MEMORY
  With --memory-error, jobs request the smallest profile that has at least their predicted memory. A
  job with too little memory runs out of it at a random time during its run. It is then requeued
  and, two minutes later, requests the next larger profile. REQUEUED is the number of these
  requeues, and LOST is the share of the busy time that the failed runs used. If the workload does
  not give a job's peak memory, simulate chooses a random peak within the memory of the profile that
  the job needs.

FULL GPUS
  With --whole-gpus, a GPU whose MIG mode is off is available as the full profile. Policies switch
  the MIG mode only if no other GPU has room, and a full GPU stays full until a slice needs it.
  --switch sets the time for a switch, for which NVIDIA publishes no figure. SWITCHED is the number
  of switches. Like whole_share in caelum.yaml, --whole-share limits the share of GPUs that may be
  full while jobs wait for slices. The limit applies only with the fifo and easy queues.

MOVES
  A MIG instance cannot be moved, but the job in it can be stopped and restarted in another one. With
  --moves, policies that place jobs directly also move or stop running jobs that have one slice:
  fragaware         after a job has ended, jobs are moved to reduce fragmentation (arXiv 2512.16099)
  grmu              when a job cannot start, the jobs on the most fragmented GPU are moved, and once
                    an hour, pairs of half-full GPUs are merged (arXiv 2502.01909)
  dynap[=SECONDS]   jobs are stopped and requeued if the first job in the queue would otherwise wait
                    longer than the stopped jobs lose (DynaP; 121 s until a requeued job can start
                    count as lost). SECONDS is added to the wait (default: 0)
  requeue           the watcher's rule (moves_per_day), without its limit on the number of moves: like
                    dynap, but only jobs that fit on other free units are stopped
  --move-cost sets the run time that a job loses because of a move: the time since its last
  checkpoint, or run for the whole run. MOVED is the number of moved and stopped jobs, LOST the share
  of the busy time that they lost, and ACTIVE the mean number of GPUs on which a job runs.
  --moves requires --sizing tightest for workloads whose jobs have speeds.

DEADLINES
  With --deadlines, a share of the jobs has a deadline (sbatch --deadline). As in Slurm, a job's latest
  start is its deadline minus its time limit (--ends). --deadline-use determines which programs know
  the deadlines:
  plan              slurmctld removes a job that has not started by its latest start, and the plan
                    helps jobs to meet their deadlines, as in production
  slurm             slurmctld removes these jobs, but the plan ignores the deadlines
  none              the jobs have no deadlines, but MET counts the jobs that end in time
  MET is the share of the jobs with deadlines that end in time, and OTHERS the mean wait of the jobs
  without deadlines. The plan prefers jobs with deadlines only to jobs of the same or lower priority.
  By default, an earlier submission means a higher priority; with --equal-priority, all jobs have the
  same priority. The whole, static and moved policies do not support deadlines.

OUTPUT
  Waiting times are in seconds. Percentiles have three significant digits. For workloads whose jobs
  run slower on smaller slices or are requeued, TURNAROUND is the mean time from submission to end.
  UTIL is the share of all units (an A100 has eight) that jobs needed, from the first submission to
  the last end. FRAG is the mean fragmentation of the GPUs, from 0 to 1. CUT is the number of
  instances created. ACCEPTED is the accepted share of the requested work, measured as units times
  time. WORST is the lowest share of started jobs among all profiles.`,
		Example: `  caelum simulate --churn uniform6 --gpus A100-40GB:16 --policies best-fit,lifetime
  caelum simulate --alibaba openb_pod_list_gpushare100.csv --gpus A100-40GB:20 \
    --profiles 1g.5gb,2g.10gb,3g.20gb,4g.20gb,7g.40gb --policies whole,static,lifetime,moved
  caelum simulate --churn bimodal --queue none --load 1 --gpus A100-40GB:32 --ends limits=1-6 \
    --policies best-fit,reach`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkFlags(cmd.Flags()); err != nil {
				return err
			}
			return runSimulate(cmd.OutOrStdout(), cmd.ErrOrStderr(), g, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *simulateOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.churn, "churn", "", "synthetic workload of this mix")
	f.StringVar(&o.alibaba, "alibaba", "", "pod list from Alibaba's gpu-v2023 trace")
	f.StringVar(&o.grmu, "grmu", "", "pod list from Alibaba's gpu-v2023 trace, with GRMU's profiles")
	f.StringVar(&o.miso, "miso", "", "job list from the MISO paper")
	f.StringVar(&o.misoSteps, "miso-steps", "", "--miso: file with the step times for each profile")
	f.DurationVar(&o.every, "every", time.Minute, "--miso: mean time between submissions")
	f.Float64Var(&o.slowdown, "slowdown", 0,
		"--miso: the longest acceptable run time, as a multiple of the run time on a whole GPU; 0: no limit")
	f.StringVar(&o.sacct, "sacct", "", "file with the output of sacct -P")
	f.BoolVar(&o.fromSacct, "from-sacct", false, "the jobs of this site")
	f.StringVar(&o.since, "since", "now-30days",
		"--from-sacct: start of the time range, in the format of sacct's --starttime")
	f.StringVar(&o.until, "until", "now", "--from-sacct: end of the time range, in the format of sacct's --endtime")
	f.IntVar(&o.jobs, "jobs", 4000, "--churn: number of jobs")
	f.Float64Var(&o.load, "load", 0.85, "--churn: mean share of all units that jobs request")
	f.DurationVar(&o.mean, "mean", time.Hour, "--churn: mean run time of the jobs")
	f.Uint64Var(&o.seed, "seed", 1, "--churn, --miso, --ends and --memory-error: seed of the random numbers")
	f.StringSliceVar(&o.gpus, "gpus", []string{"A100-40GB:16"}, "the cluster: BOARD:COUNT,...")
	f.IntVar(&o.perNode, "per-node", 0, "number of GPUs in each node, all of one model. A job's slices are all on "+
		"one node, or on as many nodes as the job requested; 0: they can be on any GPUs")
	f.StringSliceVar(&o.profiles, "profiles", nil, profilesHelp)
	f.StringSliceVar(&o.policies, "policies", nil,
		"policies to compare; default: whole, static, reach and lifetime (the agents' default); the default "+
			"omits static if there are several GPU models, and whole and static with --queue batches")
	f.StringVar(&o.static, "static", "", "layouts for the static policy, which simulate assigns to the GPUs in turn, "+
		"for example '7g.40gb / 4g.20gb 3g.20gb'; default: the best layouts")
	f.StringVar(&o.queue, "queue", "fifo", "fifo, easy, skip, smallest, batches or none")
	f.BoolVar(&o.offers, "offers", false,
		"policies act through offers to slurmctld, as in production; requires --queue fifo or easy")
	f.StringVar(&o.sizing, "sizing", "", "adaptive or tightest; default: adaptive with --queue fifo or easy")
	f.StringVar(&o.ends, "ends", "exact", "exact, limits, limits=A-B, corrected, corrected=A-B or error=S")
	f.Float64Var(&o.memoryError, "memory-error", 0,
		"jobs request a predicted amount of memory with this lognormal error; 0: jobs request the memory that they "+
			"need")
	f.Float64Var(&o.memoryMargin, "memory-margin", 0.1, "--memory-error: margin, as a share of the prediction")
	f.BoolVar(&o.stay, "stay", false,
		"jobs never end, and ACCEPTED is the accepted share of the requested units; requires --queue none")
	f.DurationVar(&o.create, "create", 0, "time to create an instance (on an A100: 160ms to 240ms); "+
		"if --create or --destroy is not 0, instances remain when their jobs end")
	f.DurationVar(&o.destroy, "destroy", 0, "time to destroy an instance (on an A100: 200ms to 220ms)")
	f.BoolVar(&o.wholeGPUs, "whole-gpus", false, "allow GPUs to be full (MIG mode off) instead of holding slices")
	f.DurationVar(&o.change, "switch", 0, "--whole-gpus: time to switch the MIG mode of a GPU")
	f.Float64Var(&o.wholeShare, "whole-share", 0,
		"--whole-gpus: largest share of the GPUs that may be full while jobs wait for slices; "+
			"0: automatic; 1: no limit")
	f.BoolVar(&o.multiGPU, "multi-gpu", false, "--alibaba: include the pods with several GPUs; requires --whole-gpus")
	f.StringVar(&o.moves, "moves", "", "move or stop running jobs: fragaware, grmu, dynap[=SECONDS] or requeue")
	f.StringVar(&o.moveCost, "move-cost", wholeRun,
		"--moves: the maximum run time that a moved or stopped job loses, or run for its whole run")
	f.Float64Var(&o.deadlines, "deadlines", 0, "share of the jobs that have a deadline; requires --queue fifo or easy")
	f.StringVar(&o.deadlineSlack, "deadline-slack", "0-2",
		"--deadlines: longest wait after which a job still meets its deadline, as a multiple of its time limit")
	f.StringVar(&o.deadlineUse, "deadline-use", "plan", "--deadlines: plan, slurm or none")
	f.BoolVar(&o.equalPriority, "equal-priority", false, "--deadlines: all jobs have the same priority")
	f.StringVar(&o.report, "report", "", "also write a self-contained HTML page with drawings to this file")
	f.BoolVar(&o.csv, "csv", false, "print comma-separated values")
}

func runSimulate(w, progress io.Writer, g *globals, o simulateOptions) error {
	if g.json && o.csv {
		return usageError{errors.New("--json and --csv cannot be combined; omit one of them")}
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
	var page *report.File
	if o.report != "" {
		if page, err = report.Create(o.report); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
		defer page.Drop()
	}
	o.speeds = slices.ContainsFunc(workload.Jobs, func(j trace.Job) bool { return j.Speed != nil })
	result := newSimulation(o, c, workload)
	for _, name := range o.policies {
		run, err := o.runPolicy(c, name, withProgress(progress, name, workload.Jobs))
		if errors.Is(err, sim.ErrNever) { // another policy may be able to start the job
			run.Policy, run.Never, err = name, err.Error(), nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		result.Policies = append(result.Policies, run)
	}
	out := bufio.NewWriter(w)
	switch {
	case g.json:
		err = printJSON(out, result)
	case o.csv:
		err = result.csv(out)
	default:
		result.print(out)
	}
	if err = errors.Join(err, out.Flush()); err == nil && page != nil {
		err = page.Write(result.page(c.GPUs))
	}
	return err
}

// fitting returns the workload without the jobs that cannot run on the cluster. It returns an error if no jobs remain,
// or if an option requires data that the jobs do not have.
func (o simulateOptions) fitting(c sim.Config) (*trace.Workload, error) {
	workload, err := o.workload(len(c.GPUs))
	if err != nil {
		return nil, err
	}
	workload.Only(nodes(c), c.Nodes == nil)
	limited := func(j trace.Job) bool { return j.Limit > 0 }
	switch {
	case len(workload.Jobs) == 0:
		return nil, fmt.Errorf("%s: no jobs to simulate%s", o.describe(), leftOut(workload.Left))
	case (o.ends == "limits" || o.ends == "corrected") && !slices.ContainsFunc(workload.Jobs, limited):
		return nil, usageError{fmt.Errorf("--ends %s: the jobs of this workload have no time limits", o.ends)}
	case o.recorded() && o.queue == "none":
		return nil, usageError{errors.New("--queue none does not support jobs from sacct, because they have " +
			"waited in a queue; choose another queue")}
	}
	return workload, nil
}

// recorded reports whether the workload contains the jobs' actual waiting times.
func (o simulateOptions) recorded() bool { return o.sacct != "" || o.fromSacct }

// nodes returns, for each node, the models of its GPUs.
func nodes(c sim.Config) (all [][]*mig.Model) {
	if c.Nodes == nil {
		return [][]*mig.Model{c.GPUs}
	}
	first := 0
	for _, n := range c.Nodes {
		all = append(all, c.GPUs[first:first+n])
		first += n
	}
	return all
}

// runPolicy simulates the workload with one policy.
func (o simulateOptions) runPolicy(c sim.Config, name string, jobs iter.Seq[trace.Job]) (out run, err error) {
	layouts, words := "", ""
	c.Offers = o.offers && name != theoretical
	switch name {
	case theoretical:
	case "whole":
		for _, b := range c.GPUs {
			whole, ok := sim.Whole(b)
			if b.Full() != 0 {
				whole, ok = b.Full(), true // a full GPU is also sufficient for a job that needs a slice
			}
			if !ok {
				return run{}, usageError{fmt.Errorf("--profiles: no profile of %s occupies a whole GPU", b.Name)}
			}
			c.Static = append(c.Static, whole)
		}
	case "static":
		p, err := o.pattern(c, jobs)
		if err != nil {
			return run{}, err
		}
		layouts, c.Static = p.Names(c.GPUs[0]), p.Deal(len(c.GPUs))
		words = inWords(c.GPUs[0], c.Static)
	default:
		if c.Policy, err = place.ByName(name); err != nil {
			return run{}, err
		}
		c.WholeShare = o.wholeShare
		if c.Moves, err = o.parseMoves(); err != nil {
			return run{}, err
		}
		if o.speeds && o.adaptive(c.Discipline) {
			c.Sizing = sim.Adaptive
		}
	}
	var recorded *report.Recorder
	if o.report != "" {
		recorded = &report.Recorder{}
		c.Observer = recorded
	}
	r, err := sim.Run(c, jobs)
	if err != nil {
		return run{}, err
	}
	out = newRun(name, layouts, r)
	out.words, out.recorded = words, recorded
	return out, nil
}

// inWords describes fixed layouts, for example "2 GPUs with 7g.40gb, 1 GPU with 4g.20gb 3g.20gb".
func inWords(b *mig.Model, layouts []mig.Layout) string {
	count := map[mig.Layout]int{}
	for _, l := range layouts {
		count[l]++
	}
	var all []string
	for _, l := range layouts { // in the order of the GPUs
		if n := count[l]; n > 0 {
			all = append(all, fmt.Sprintf("%s with %s", plural(n, "GPU"), sim.Pattern{l}.Names(b)))
			delete(count, l)
		}
	}
	return strings.Join(all, ", ")
}

// pattern returns the layouts for the static policy: those given by --static, or the best ones found by sim.BestStatic.
func (o simulateOptions) pattern(c sim.Config, jobs iter.Seq[trace.Job]) (sim.Pattern, error) {
	if o.static != "" {
		return sim.ParsePattern(c.GPUs[0], o.static)
	}
	return sim.BestStatic(c, jobs, func(a, b *sim.Result) bool {
		if c.Discipline == sim.Loss {
			return a.Accepted() > b.Accepted()
		}
		return a.MeanTurnaround() < b.MeanTurnaround()
	})
}
