package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"caelum/internal/core/mig"
	"caelum/internal/core/place"
	"caelum/internal/sim"
	"caelum/internal/sim/report"
	"caelum/internal/sim/trace"
)

type simulateOptions struct {
	churn, sacct string
	fromSacct    bool
	observed     []string
	since, until string
	jobs         int
	load         float64
	seed         uint64

	gpus, profiles, policies []string
	perNode                  int
	queue, ends, static      string
	offers, wholeGPUs        bool
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
                    the profiles of an A100-40GB (--jobs, --load, --seed). MIX is uniform6,
                    skew-small, bimodal or four-equal
  --from-sacct      the jobs of this site, as reported by sacct (--since, --until). A job needs the
                    profile of the slices that it had. A job without slices needs the smallest
                    profile that is sufficient for the memory and utilisation in its accounting
                    record (gres/gpumem, gres/gpuutil), or a whole GPU if these values are missing
  --sacct FILE      the jobs in a file, as for --from-sacct. The file contains the output of sacct
                    -a -P, without -D, with the columns
                    ` + strings.Join(trace.SacctColumns, ",") + `

  --observed FILE   the jobs that "caelumd observe" recorded; give the files of all nodes, separated by
                    commas. A job with one GPU needs its peak memory and 5%, and its run time on a
                    slice follows from its utilisation. A job with several GPUs needs whole GPUs.
                    GPUS is the mean number of GPUs on which jobs run

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
                    most accepted work. A job gets the smallest free slice that is large enough. With
                    10,000 jobs or more and 32 GPUs or more, the search first ranks the layouts on a
                    sample of the jobs and GPUs, and then compares the best five on all of them

QUEUES
  fifo              jobs start in the order of submission. No job starts before an earlier one
  easy              the first job that cannot start gets a reservation. Other jobs may start if they
                    do not delay it
  none              a job that cannot start when it is submitted is rejected

ENDS, the run times that the policies expect
  exact             the actual run times
  limits            the jobs' time limits, without correction, as in the agents. The policies expect
                    a job without a time limit to run for a very long time
  limits=A-B        a time limit of A to B times the actual run time

OFFERS
  With --offers, policies act as in production: the agents publish offers 0.1 s after an event, and
  at the next whole second, slurmctld allocates the offered slices to jobs without knowing the
  policy. Of the jobs that could have started when they were submitted, ON OFFER is the share whose
  profile was on offer at that time. With whole and static, slurmctld also starts jobs only at whole
  seconds, but without offers. Without --offers, all jobs start as soon as a job is submitted or
  ends.

FULL GPUS
  With --whole-gpus, a GPU whose MIG mode is off is available as the full profile. Policies switch
  the MIG mode only if no other GPU has room, and a full GPU stays full until a slice needs it.
  SWITCHED is the number of switches. With the fifo and easy queues, the share of GPUs that may be
  full while jobs wait for slices is limited as by default in caelum.yaml (whole_share).

FRACTIONS
  On GPUs without MIG (--gpus L40S-48GB/4:8), a job needs the smallest fraction with enough memory; a
  profile of MIG stands for its memory. The jobs on a GPU do not slow each other down, although they
  share its compute slices: the results are those of jobs that leave their GPUs mostly idle.

OUTPUT
  Waiting times are in seconds. Percentiles have three significant digits. UTIL is the share of all
  units (an A100 has eight) that jobs needed, from the first submission to the last end. FRAG is the
  mean fragmentation of the GPUs, from 0 to 1. CUT is the number of instances created. ACCEPTED is
  the accepted share of the requested work, measured as units times time. WORST is the lowest share
  of started jobs among all profiles.`,
		Example: `  caelum simulate --churn uniform6 --gpus A100-40GB:16 --policies best-fit,lifetime
  caelum simulate --from-sacct --gpus A100-40GB:8 --per-node 4 --queue easy --ends limits --offers
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
	f.StringVar(&o.sacct, "sacct", "", "file with the output of sacct -P")
	f.StringSliceVar(&o.observed, "observed", nil, "files of \"caelumd observe\"")
	f.BoolVar(&o.fromSacct, "from-sacct", false, "the jobs of this site")
	f.StringVar(&o.since, "since", "now-30days",
		"--from-sacct: start of the time range, in the format of sacct's --starttime")
	f.StringVar(&o.until, "until", "now", "--from-sacct: end of the time range, in the format of sacct's --endtime")
	f.IntVar(&o.jobs, "jobs", 4000, "--churn: number of jobs")
	f.Float64Var(&o.load, "load", 0.85, "--churn: mean share of all units that jobs request")
	f.Uint64Var(&o.seed, "seed", 1, "--churn and --ends: seed of the random numbers")
	f.StringSliceVar(&o.gpus, "gpus", []string{"A100-40GB:16"}, "the cluster: BOARD:COUNT,...")
	f.IntVar(&o.perNode, "per-node", 0, "number of GPUs in each node, all of one model. A job's slices are all on "+
		"one node, or on as many nodes as the job requested; 0: they can be on any GPUs")
	f.StringSliceVar(&o.profiles, "profiles", nil, profilesHelp)
	f.StringSliceVar(&o.policies, "policies", nil,
		"policies to compare; default: whole, static, reach and lifetime (the agents' default); the default "+
			"omits static if there are several GPU models")
	f.StringVar(&o.static, "static", "", "layouts for the static policy, which simulate assigns to the GPUs in turn, "+
		"for example '7g.40gb / 4g.20gb 3g.20gb'; default: the best layouts")
	f.StringVar(&o.queue, "queue", "fifo", "fifo, easy or none")
	f.BoolVar(&o.offers, "offers", false,
		"policies act through offers to slurmctld, as in production; requires --queue fifo or easy")
	f.StringVar(&o.ends, "ends", "exact", "exact, limits or limits=A-B")
	f.BoolVar(&o.wholeGPUs, "whole-gpus", false, "allow GPUs to be full (MIG mode off) instead of holding slices")
	f.StringVar(&o.report, "report", "", "also write a self-contained HTML page with drawings to this file")
}

func runSimulate(w, terminal io.Writer, g *globals, o simulateOptions) error {
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
	result := newSimulation(o, c, workload)
	shown := newProgress(terminal)
	for k, name := range o.policies {
		shown.begin(fmt.Sprintf("policy %d of %d (%s)", k+1, len(o.policies), name))
		run, err := o.runPolicy(c, name, workload.Jobs, shown)
		shown.end()
		if errors.Is(err, sim.ErrNever) { // another policy may be able to start the job
			run.Policy, run.Never, err = name, err.Error(), nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		result.Policies = append(result.Policies, run)
	}
	out := bufio.NewWriter(w)
	if g.json {
		err = printJSON(out, result)
	} else {
		result.print(out)
	}
	if err = errors.Join(err, out.Flush()); err == nil && page != nil {
		err = page.Write(result.page(c.GPUs), 0o644)
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
	case o.ends == "limits" && !slices.ContainsFunc(workload.Jobs, limited):
		return nil, usageError{errors.New("--ends limits: the jobs of this workload have no time limits")}
	case o.recorded() && o.queue == "none":
		return nil, usageError{errors.New("--queue none does not support recorded jobs, because they have " +
			"waited in a queue; choose another queue")}
	}
	return workload, nil
}

// recorded reports whether the workload contains the jobs' actual waiting times.
func (o simulateOptions) recorded() bool { return o.churn == "" }

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
func (o simulateOptions) runPolicy(c sim.Config, name string, jobs []trace.Job, shown *progress) (out run, err error) {
	layouts, words := "", ""
	switch name {
	case "whole":
		for _, b := range c.GPUs {
			whole, ok := sim.OneInstance(b)
			if b.Full() != 0 {
				whole, ok = b.Full(), true // a full GPU is also sufficient for a job that needs a slice
			}
			if !ok {
				return run{}, usageError{fmt.Errorf("--profiles: no profile of %s occupies a whole GPU", b.Name)}
			}
			c.Static = append(c.Static, whole)
		}
	case "static":
		p, err := o.pattern(c, jobs, shown)
		if err != nil {
			return run{}, err
		}
		layouts, c.Static = p.Names(c.GPUs[0]), p.Deal(len(c.GPUs))
		words = inWords(c.GPUs[0], c.Static)
	default:
		if c.Policy, err = place.ByName(name); err != nil {
			return run{}, err
		}
	}
	var recorded *report.Recorder
	if o.report != "" {
		recorded = &report.Recorder{}
		c.Observer = recorded
	}
	r, err := sim.Run(c, shown.jobs(jobs))
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
func (o simulateOptions) pattern(c sim.Config, jobs []trace.Job, shown *progress) (sim.Pattern, error) {
	if o.static != "" {
		return sim.ParsePattern(c.GPUs[0], o.static)
	}
	better := func(a, b *sim.Result) bool {
		if c.Discipline == sim.Loss {
			return a.Accepted() > b.Accepted()
		}
		return a.MeanTurnaround() < b.MeanTurnaround()
	}
	return sim.BestStatic(c, jobs, better, shown.show)
}
