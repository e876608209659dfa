package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
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
	static                   string
	memoryError              float64
	memoryMargin             float64
	create, destroy          time.Duration
	csv, stay                bool
	report                   string
}

var disciplines = map[string]sim.Discipline{
	"fifo":     sim.FIFO,
	"easy":     sim.EASY,
	"skip":     sim.Skip,
	"smallest": sim.Smallest,
	"batches":  sim.Batches,
	"none":     sim.Loss,
}

// mostGPUs bounds what is simulated; the largest public clusters have some ten thousand.
const mostGPUs = 100000

func newSimulate(g *globals) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play a workload on a cluster that does not exist, under several policies",
		Long: `simulate plays jobs on a cluster of GPUs and says how long they would have waited, under one policy after the other. What decides
is the code that decides in production. It takes no time but the computer's.

WORKLOADS, one of
  --churn MIX       synthetic: Poisson arrivals, exponential durations, one slice each, by the profiles of an A100-40GB (--jobs, --load,
                    --mean, --seed); mixes are uniform6, skew-small, bimodal and four-equal
  --alibaba FILE    a pod list of Alibaba's gpu-v2023 trace (openb_pod_list_*.csv): the pods with one GPU; each needs the smallest profile
                    that holds its share
  --grmu FILE       the same, with the profiles that the GRMU paper gives the pods (arXiv 2502.01909)
  --miso FILE       the training jobs of the MISO paper (arXiv 2207.11428, jobs_100.csv) with the step times that were measured on each profile
                    (--miso-steps a100_40gb_mig_step_time.csv); a job gets the smallest profile on which it fits and is not slower than
                    --slowdown, runs as fast as it did there, and comes --every so often on average
  --from-sacct      this site's own jobs, as sacct has them (--since, --until). Each needs the profile that it was given; else the smallest
                    that holds the memory and utilisation that sacct has of it (gres/gpumem, gres/gpuutil); else a whole GPU
  --sacct FILE      the same from a file that sacct -a -P wrote (without -D), with the columns
                    ` + strings.Join(
			trace.SacctColumns,
			",",
		) + `

POLICIES, any number of
  first-fit, best-fit, driver, reach, mcc, mecc, fgd, fragaware, grmu, lifetime, scarcity, qla
                    slices are cut when a job starts, where the policy says. fragaware=SHARE sets the load from which a GPU counts as
                    busy (0.4), grmu=SHARE the share of the GPUs that whole-GPU instances may take (0.3)
  whole             every job gets a whole GPU
  static            GPUs are cut once and for all, as --static says or in the best way that was found for this very workload (soonest done on
                    average; without a queue, most accepted); a job gets the smallest free slice that holds it
  moved             the reference: running jobs may be moved at any time for nothing; with --queue fifo nothing can beat it, unless
                    jobs run slower on smaller slices (--miso)

QUEUES
  fifo              in the order of submission; nobody starts before the one in front of him
  easy              the first that cannot start has a reservation; others may start if they do not delay it
  skip              in the order of submission, passing over those that do not fit: large jobs may wait for ever
  smallest          the smallest that fits first
  batches           of the first 7 that wait (as many as instances fit on the GPU), those start together on one GPU that make the most of
                    it: jobs may wait for ever, and those whose slices do not fit on one GPU together do (DynaP); without whole, static
                    and moved
  none              who cannot start at once is turned away

ENDS, what policies are told of how long jobs run
  exact             the truth
  limits            the jobs' own time limits, as the agents have them; a job without one is expected to run for a very long time
  limits=A-B        a time limit, A to B times the truth
  corrected         the jobs' own time limits, corrected by how long the jobs that have ended ran in proportion to
                    theirs. No agent does that yet
  corrected=A-B     a time limit, A to B times the truth, corrected likewise
  error=S           a prediction with a lognormal error of S, corrected likewise

OFFERS
  With --offers policies act as in production: agents put slices on offer 0.1 s after something has happened, and slurmctld gives them out at its next
  whole second, knowing nothing but what is on offer. ON OFFER is, of the jobs that could start when they were submitted, the share that found their
  profile on offer. Without it policies place each job the moment that it comes. Other rows (whole, static, moved) are the same either way.

MEMORY
  With --memory-error jobs ask for the smallest profile that holds what is predicted of them. One that gets too little runs out of memory at
  some moment of its run, is requeued, and asks for the next larger profile two minutes later. REQUEUED counts these, LOST is the share of
  what was busy that they had in vain. Peaks that a workload does not tell are drawn within the profile that the job needs.

Waits are in seconds, percentiles to three digits; TURNAROUND is the mean from submission to end, where jobs run slower on smaller slices. UTIL is the share of all
units (an A100 has eight) that jobs needed, from the first submission to the last end; FRAG how fragmented the GPUs were on average (0 to 1), CUT how
many instances were made. ACCEPTED is the share of what was asked for, in units times time; WORST is, of the profile that fared worst,
the share of its jobs that started.`,
		Example: `  caelum simulate --churn uniform6 --gpus A100-40GB:16 --policies best-fit,lifetime,qla
  caelum simulate --alibaba openb_pod_list_gpushare100.csv --gpus A100-40GB:20 --profiles 1g.5gb,2g.10gb,3g.20gb,4g.20gb,7g.40gb --policies whole,static,qla,moved
  caelum simulate --churn bimodal --queue none --load 1 --gpus A100-40GB:32 --ends limits=1-6 --policies best-fit,scarcity`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.strays(cmd.Flags()); err != nil {
				return err
			}
			return runSimulate(cmd.OutOrStdout(), cmd.ErrOrStderr(), g, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.churn, "churn", "", "synthetic workload of this mix")
	f.StringVar(&o.alibaba, "alibaba", "", "pod list of Alibaba's gpu-v2023 trace")
	f.StringVar(&o.grmu, "grmu", "", "the same, with GRMU's profiles")
	f.StringVar(&o.miso, "miso", "", "the MISO paper's list of jobs")
	f.StringVar(&o.misoSteps, "miso-steps", "", "miso: the step times on each profile")
	f.DurationVar(&o.every, "every", time.Minute, "miso: the mean time between two submissions")
	f.Float64Var(&o.slowdown, "slowdown", 0, "miso: how many times slower than on a whole GPU a job may be; 0: any")
	f.StringVar(&o.sacct, "sacct", "", "what sacct -P printed")
	f.BoolVar(&o.fromSacct, "from-sacct", false, "this site's own jobs")
	f.StringVar(&o.since, "since", "now-30days", "--from-sacct: jobs since then, as sacct's --starttime has it")
	f.StringVar(&o.until, "until", "now", "--from-sacct: jobs until then, as sacct's --endtime has it")
	f.IntVar(&o.jobs, "jobs", 4000, "churn: how many jobs")
	f.Float64Var(&o.load, "load", 0.85, "churn: the share of all units that is asked for on average")
	f.DurationVar(&o.mean, "mean", time.Hour, "churn: how long jobs run on average")
	f.Uint64Var(&o.seed, "seed", 1, "churn, miso and ends: the same seed gives the same jobs")
	f.StringSliceVar(&o.gpus, "gpus", []string{"A100-40GB:16"}, "the cluster: BOARD:COUNT,...")
	f.IntVar(
		&o.perNode,
		"per-node",
		0,
		"how many of the GPUs of a board a node has: a job has all its slices on one node, or on as many as it asked for; 0: anywhere",
	)
	f.StringSliceVar(
		&o.profiles,
		"profiles",
		nil,
		"the profiles that count; default those without variants (+me, ...), \"all\" every one",
	)
	f.StringSliceVar(
		&o.policies,
		"policies",
		nil,
		"which to compare; default whole, static, reach, lifetime and qla (the agents'), on unlike boards without static, with --queue batches without whole and static",
	)
	f.StringVar(
		&o.static,
		"static",
		"",
		"the layouts of the policy static, dealt out over the GPUs in turn, instead of the best: '7g.40gb / 4g.20gb 3g.20gb'",
	)
	f.StringVar(&o.queue, "queue", "fifo", "fifo, easy, skip, smallest, batches or none")
	f.BoolVar(
		&o.offers,
		"offers",
		false,
		"policies act through offers that slurmctld gives out, as in production, not directly; with --queue fifo or easy",
	)
	f.StringVar(&o.ends, "ends", "exact", "exact, limits, limits=A-B, corrected, corrected=A-B or error=S")
	f.Float64Var(
		&o.memoryError,
		"memory-error",
		0,
		"jobs ask for what is predicted of their memory, with a lognormal error of this",
	)
	f.Float64Var(&o.memoryMargin, "memory-margin", 0.1, "--memory-error: this share on top of the prediction")
	f.BoolVar(
		&o.stay,
		"stay",
		false,
		"nobody leaves: durations are ignored, and ACCEPTED counts units alone; for --queue none",
	)
	f.DurationVar(
		&o.create,
		"create",
		0,
		"how long it takes to make an instance (an A100: 160ms to 240ms); if this or --destroy is not 0, instances stay when their jobs end",
	)
	f.DurationVar(&o.destroy, "destroy", 0, "how long it takes to destroy one (an A100: 200ms to 220ms)")
	f.StringVar(&o.report, "report", "", "write a page with drawings to this file, too: HTML that needs nothing else")
	f.BoolVar(&o.csv, "csv", false, "print comma-separated values")
	return cmd
}

// strays finds options that say nothing of what is played.
func (o simulateOptions) strays(f *pflag.FlagSet) error {
	for name, goes := range map[string]struct {
		with string
		ok   bool
	}{
		"jobs": {"--churn", o.churn != ""}, "load": {"--churn", o.churn != ""}, "mean": {"--churn", o.churn != ""},
		"miso-steps": {"--miso", o.miso != ""}, "every": {"--miso", o.miso != ""}, "slowdown": {"--miso", o.miso != ""},
		"since": {"--from-sacct", o.fromSacct}, "until": {"--from-sacct", o.fromSacct}, "memory-margin": {"--memory-error", o.memoryError > 0},
	} {
		if f.Changed(name) && !goes.ok {
			return usageError{fmt.Errorf("--%s goes with %s", name, goes.with)}
		}
	}
	return nil
}

func runSimulate(w, progress io.Writer, g *globals, o simulateOptions) error {
	if g.json && o.csv {
		return usageError{errors.New("--json or --csv: choose one")}
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.policies, err = o.checkPolicies(c.GPUs); err != nil {
		return err
	}
	work, err := o.workload(len(c.GPUs))
	if err != nil {
		return err
	}
	work.Only(nodes(c), c.Nodes == nil)
	if len(work.Jobs) == 0 {
		return fmt.Errorf("%s: no jobs to play%s", o.describe(), leftOut(work.Left))
	}
	limited := func(j trace.Job) bool { return j.Limit > 0 }
	if (o.ends == "limits" || o.ends == "corrected") && !slices.ContainsFunc(work.Jobs, limited) {
		return usageError{fmt.Errorf("--ends %s: the jobs of this workload have no time limits", o.ends)}
	}
	slower := slices.ContainsFunc(work.Jobs, func(j trace.Job) bool { return j.Speed != nil })
	result := simulation{
		Workload: o.describe(), Jobs: len(work.Jobs), LeftOut: work.Left, Assumed: work.Assumed, Several: work.Several, Needs: needs(work.Jobs, c.GPUs), GPUs: len(c.GPUs),
		Cluster: strings.Join(
			o.gpus,
			",",
		), PerNode: o.perNode, Queue: o.queue, Offers: o.offers, Ends: o.ends, Create: c.Create, Destroy: c.Destroy, Memory: c.Memory,
	}
	var page *report.File
	if o.report != "" {
		if page, err = report.Create(o.report); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
		defer page.Drop()
	}
	if o.sacct != "" || o.fromSacct {
		if o.queue == "none" {
			return usageError{errors.New("--queue none: at this site jobs wait; choose another")}
		}
		result.Policies = append(result.Policies, asItWas(work.Jobs))
	}
	for _, name := range o.policies {
		run, err := o.play(c, name, watched(progress, name, work.Jobs))
		if errors.Is(err, sim.ErrNever) { // the others may do better
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
		result.print(out, o.queue == "none", slower || c.Memory != nil, c.Memory != nil, o.offers)
	}
	if err = errors.Join(err, out.Flush()); err == nil && page != nil {
		err = page.Write(result.page(c.GPUs, o.queue == "none"))
	}
	return err
}

// needs counts the jobs by the profile that they need, on the first GPU model that has one for them.
func needs(jobs []trace.Job, gpus []*mig.Model) map[string]int {
	count := map[string]int{}
	kinds := sim.Kinds(gpus)
	for _, j := range jobs {
		for _, b := range kinds {
			if name, ok := j.On(b); ok {
				count[name]++
				break
			}
		}
	}
	return count
}

// checkPolicies finds what cannot be played before anything is.
func (o simulateOptions) checkPolicies(gpus []*mig.Model) ([]string, error) {
	alike := sim.Alike(gpus)
	if o.static != "" {
		if !alike {
			return nil, usageError{errors.New("--static: only with GPUs of one board")}
		}
		if _, err := sim.ParsePattern(gpus[0], o.static); err != nil {
			return nil, usageError{fmt.Errorf("--static: %w", err)}
		}
	}
	batches := o.queue == "batches"
	if o.policies == nil {
		all := []string{"whole", "static", "reach", "lifetime", "qla"}
		switch {
		case batches:
			all = slices.Delete(all, 0, 2)
		case !alike:
			all = slices.Delete(all, 1, 2)
		}
		return all, nil
	}
	if len(o.policies) == 0 {
		return nil, usageError{errors.New("--policies: which? --help lists them")}
	}
	for _, name := range o.policies {
		if batches && slices.Contains([]string{"whole", "static", "moved"}, name) {
			return nil, usageError{
				fmt.Errorf("--queue batches: not with %s, only with %s", name, strings.Join(place.Names(), ", ")),
			}
		}
		switch name {
		case "whole":
		case "static", "moved":
			if !alike {
				return nil, usageError{fmt.Errorf("--policies %s: only with GPUs of one board", name)}
			}
		default:
			if _, err := place.ByName(name); err != nil {
				return nil, usageError{fmt.Errorf("--policies: %w (besides whole, static and moved)", err)}
			}
		}
	}
	return o.policies, nil
}

// play runs one policy.
func (o simulateOptions) play(c sim.Config, name string, jobs iter.Seq[trace.Job]) (out run, err error) {
	layouts := ""
	switch name {
	case "moved":
	case "whole":
		for _, b := range c.GPUs {
			whole, ok := sim.Whole(b)
			if !ok {
				return run{}, usageError{fmt.Errorf("%s has no profile of a whole GPU here (--profiles)", b.Name)}
			}
			c.Static = append(c.Static, whole)
		}
	case "static":
		p, err := o.pattern(c, jobs)
		if err != nil {
			return run{}, err
		}
		layouts, c.Static = p.Names(c.GPUs[0]), p.Deal(len(c.GPUs))
	default:
		if c.Policy, err = place.ByName(name); err != nil {
			return run{}, err
		}
		c.Offers = o.offers
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
	out.recorded = recorded
	return out, nil
}

// pattern is the layouts of static: those that were given, or the best.
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

// config is all of the configuration but the policy.
func (o simulateOptions) config() (c sim.Config, err error) {
	var whole []*mig.Model
	boards := map[string]*mig.Model{}
	for _, item := range o.gpus {
		name, count, ok := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 1 || len(c.GPUs)+n > mostGPUs {
			return c, usageError{
				fmt.Errorf("--gpus %s: write BOARD:COUNT, as in A100-40GB:16; at most %d in all", item, mostGPUs),
			}
		}
		b, err := modelNamed(name)
		if err != nil {
			return c, err
		}
		if boards[b.Name] == nil {
			whole = append(whole, b)
			boards[b.Name] = selected(b, o.profiles)
		}
		c.GPUs = append(c.GPUs, slices.Repeat([]*mig.Model{boards[b.Name]}, n)...)
		for ; o.perNode > 0 && n > 0; n -= o.perNode {
			c.Nodes = append(c.Nodes, min(n, o.perNode))
		}
	}
	if err := checkProfiles(o.profiles, whole...); err != nil {
		return c, err
	}
	var known bool
	if c.Discipline, known = disciplines[o.queue]; !known {
		return c, usageError{fmt.Errorf("--queue %s: there are fifo, easy, skip, smallest, batches and none", o.queue)}
	}
	if o.offers && c.Discipline != sim.FIFO && c.Discipline != sim.EASY {
		return c, usageError{errors.New("--offers: with --queue fifo or easy")}
	}
	if c.Stay = o.stay; o.stay && c.Discipline != sim.Loss {
		return c, usageError{errors.New("--stay: who waits would wait for ever; give --queue none too")}
	}
	if o.create < 0 || o.destroy < 0 {
		return c, usageError{errors.New("--create and --destroy take no less than no time")}
	}
	if o.perNode < 0 {
		return c, usageError{
			errors.New("--per-node: a node has at least one GPU (0: nobody asks which node a GPU is in)"),
		}
	}
	switch e, m := o.memoryError, o.memoryMargin; {
	case !(e >= 0 && e < 10 && m >= 0 && m < 100):
		return c, usageError{
			errors.New("--memory-error and --memory-margin are at least 0 and small, as in 0.2 and 0.1"),
		}
	case e > 0 && o.stay:
		return c, usageError{
			errors.New("--stay: nobody runs, and so nobody runs out of memory; leave --memory-error out"),
		}
	case e > 0:
		c.Memory = &sim.Memory{Error: e, Margin: m, Seed: o.seed}
	}
	if c.Said, c.Learn, err = o.said(); err != nil {
		return c, err
	}
	c.Create, c.Destroy = o.create.Seconds(), o.destroy.Seconds()
	return c, nil
}

// nodes are the GPU models of the GPUs of each.
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

// ownLimits says of a job its time limit, if it had one.
func ownLimits(j trace.Job) float64 { return cmp.Or(j.Limit, math.Inf(1)) }

// said reads --ends.
func (o simulateOptions) said() (said func(trace.Job) float64, learn bool, err error) {
	kind, value, _ := strings.Cut(o.ends, "=")
	switch kind {
	case "exact":
		if value == "" {
			return nil, false, nil
		}
	case "limits", "corrected": // agents take limits as they are
		learn = kind == "corrected"
		if value == "" {
			return ownLimits, learn, nil
		}
		from, to, _ := strings.Cut(value, "-")
		a, err1 := strconv.ParseFloat(from, 64)
		b, err2 := strconv.ParseFloat(to, 64)
		if err1 == nil && err2 == nil && a >= 1 && b >= a && b < 1e6 {
			return sim.Limits(a, b, o.seed), learn, nil
		}
	case "error":
		if s, err := strconv.ParseFloat(value, 64); err == nil && s >= 0 && s < 10 {
			return sim.Predictions(s, o.seed), true, nil
		}
	}
	const forms = "exact, limits, limits=1-6, corrected, corrected=1-6 or error=0.3"
	return nil, false, usageError{fmt.Errorf("--ends %s: write %s", o.ends, forms)}
}
