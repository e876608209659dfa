package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
)

// profileJobOptions holds the flags of caelum profile-job. They determine what is measured and how the results are
// compared.
type profileJobOptions struct {
	repoOptions
	sbatch, profiles []string
	batches          []int
	steps, batch     int
	lambda, deadline float64
	from, out        string
	apply            bool
}

func newProfileJob(g *globals) *cobra.Command {
	var o profileJobOptions
	cmd := &cobra.Command{
		Use:   "profile-job [--sbatch OPTION]... (SCRIPT [ARGUMENT...] | --from FILE)",
		Short: "Run a batch script on each profile, and compare speed and memory",
		Long: `profile-job submits a batch script as the calling user, once for each profile and batch size, and
waits until all jobs have ended. For each job, it prints the run time, the memory usage, and the
speed relative to the largest profile.

The script or --sbatch must request a GPU on each node (--gres=gpu:1). Array jobs are not supported.
The jobs may run at the same time; to run them one after the other, add
--sbatch=--dependency=singleton. Ctrl-C cancels the jobs that have not ended.

With --batches, the script finds the batch size in the CAELUM_BATCH environment variable and the
number of steps in CAELUM_STEPS. For each batch size, profile-job also prints the profile that the
DynaP method chooses. This method maximizes a value F: lambda times the relative decrease in step
time, plus (1 - lambda) times the relative increase in throughput, both compared with the largest
batch size that fits on the profile.

With --from and --apply, later jobs with the same key get the profile that DynaP chose for one batch
size, until a run with this key runs out of memory. An administrator runs this command on the host
that stores the repository, and then runs "caelum repo decisions".`,
		Example: `  caelum profile-job --sbatch=--gres=gpu:1 --profiles 1g.5gb,2g.10gb,7g.40gb train.sh
  caelum profile-job --batches 8,16,32 --steps 1000 --deadline 0.2 --out train.jsonl train.sh --epochs 1
  caelum profile-job --from train.jsonl --lambda 1
  caelum profile-job --from train.jsonl --batch 16 --apply     # as root or SlurmUser`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runProfileJob(ctx, cmd.OutOrStdout(), g, o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the script are the script's own arguments
	f.StringVar(&o.config, "config", config.DefaultPath,
		"the configuration file; only its table and accounting_field keys are used")
	f.StringVar(&o.table, "table", "", "the decision table; default: the path set by the table key in the "+
		"configuration file")
	f.StringVar(&o.model, "board", "",
		"the GPU model; default: the first model with these profiles in the decision table, or in Caelum's tables")
	f.StringArrayVar(&o.sbatch, "sbatch", nil, "an option for sbatch; can be repeated")
	f.StringSliceVar(&o.profiles, "profiles", nil,
		"profiles to measure; default: all profiles of the GPU model except variants")
	f.IntSliceVar(&o.batches, "batches", nil, "batch sizes to measure")
	f.IntVar(&o.steps, "steps", 0, "number of steps that the script runs")
	f.Float64Var(&o.lambda, "lambda", 0.5, "weight of the step time relative to the throughput, from 0 to 1")
	f.Float64Var(&o.deadline, "deadline", 0, "maximum duration of a step in seconds; 0: no limit")
	f.StringVar(&o.out, "out", "", "write the measurements to this file, one JSON object per line")
	f.StringVar(&o.from, "from", "", "evaluate the measurements in this file instead of submitting jobs")
	f.BoolVar(&o.apply, "apply", false,
		"with --from: store DynaP's choice in this host's repository as the profile for the script's key")
	f.StringVar(&o.path, "repo", "", "with --apply: the repository; default: repo in the configuration file")
	f.IntVar(&o.batch, "batch", 0, "with --from: evaluate only this batch size")
	return cmd
}

// check returns an error if a flag has an invalid value or two flags contradict each other.
func (o profileJobOptions) check(args []string) error {
	bad := func(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }
	switch {
	case (o.from == "") == (len(args) == 0):
		return bad("specify either a batch script, or a file of measurements with --from")
	case o.from != "" && (len(o.sbatch)+len(o.profiles)+len(o.batches)+o.steps > 0 || o.out != ""):
		return bad("--from submits no jobs; omit --sbatch, --profiles, --batches, --steps and --out")
	case o.apply && o.from == "":
		return bad("--apply requires --from; first measure the script as its user with --out")
	case o.from == "" && o.batch != 0:
		return bad("--batch requires --from; use --batches for a script")
	case !(o.lambda >= 0 && o.lambda <= 1):
		return bad("--lambda %v is not between 0 and 1", o.lambda)
	case !(o.deadline >= 0):
		return bad("--deadline must be at least 0 seconds, not %v", o.deadline)
	case o.steps < 0 || o.batch < 0:
		return bad("--steps and --batch must not be negative")
	}
	for _, n := range o.batches {
		if n < 1 {
			return bad("--batches: %d is not a batch size; specify at least 1", n)
		}
	}
	for _, s := range o.sbatch {
		if !strings.HasPrefix(s, "-") {
			return bad("--sbatch: %q is not an sbatch option; specify one, as in --sbatch=--gres=gpu:1", s)
		}
	}
	return nil
}

func runProfileJob(ctx context.Context, w io.Writer, g *globals, o profileJobOptions, script []string) error {
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	var runs []measurement
	if o.from != "" {
		if runs, err = measurementsOf(o.from); err != nil {
			return err
		}
		o.profiles = nil
		for _, m := range runs {
			o.profiles = append(o.profiles, m.Profile)
		}
	} else if err = o.defaultProfiles(cfg); err != nil {
		return err
	}
	b, err := o.modelWith(cfg, o.profiles)
	if err != nil {
		return err
	}
	if o.from == "" {
		if runs, err = o.measure(ctx, cfg, script); err != nil {
			return err
		}
	}
	if o.batch > 0 && !slices.ContainsFunc(runs, func(m measurement) bool { return m.Batch == o.batch }) {
		return fmt.Errorf("%s contains no measurement with batch size %d", o.from, o.batch)
	}
	j := evaluate(b, runs, o.batch, predict.Goal{Lambda: o.lambda, Deadline: o.deadline})
	if o.apply {
		return o.applyChoice(w, j)
	}
	if g.json {
		return printJSON(w, j)
	}
	return printEvaluation(w, j)
}

// defaultProfiles sets the profiles to measure if --profiles is not given: all profiles, except variants, of the GPU
// model given by --board or, without --board, of the first GPU model in the decision table.
func (o *profileJobOptions) defaultProfiles(cfg config.Config) error {
	if len(o.profiles) > 0 {
		return nil
	}
	t, err := o.decisions(cfg)
	switch {
	case len(t.Models) > 0:
		o.profiles = profileNames(t.Models[0])
		return nil
	case err != nil:
		return fmt.Errorf("use --profiles or --board: %w", err)
	}
	return usageError{
		errors.New("use --profiles or --board, because this host has no decision table"),
	}
}

// modelWith returns the GPU model given by --board, or an error if this model lacks one of the profiles. Without
// --board, it returns the first GPU model that has all of them. It searches the models in the decision table first, and
// then all other models.
func (o profileJobOptions) modelWith(cfg config.Config, profiles []string) (*mig.Model, error) {
	var candidates []*mig.Model
	if o.model != "" {
		b, err := modelNamed(o.model)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, b)
	} else {
		// If the decision table cannot be read, the GPU model is determined from the profile names alone.
		known, err := o.decisions(cfg)
		if err != nil && o.table != "" {
			return nil, err
		}
		candidates = append(known.Models, mig.Models()...)
	}
	for _, b := range candidates {
		if !slices.ContainsFunc(profiles, func(name string) bool { _, ok := b.ProfileIndex(name); return !ok }) {
			return b, nil
		}
	}
	return nil, usageError{
		fmt.Errorf(
			"no GPU model has all of the profiles %s; `caelum profiles BOARD` lists the profiles of a model",
			printable(strings.Join(profiles, ", ")),
		),
	}
}
