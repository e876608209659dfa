package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/slurm"
)

const (
	// lookEvery is the pause between two questions to slurmdbd.
	lookEvery = 5 * time.Second
	// summaryWait is how long after a job's end its summary may come.
	summaryWait = time.Minute
)

// profileJobOptions say what is measured, and by what it is judged.
type profileJobOptions struct {
	repoOptions
	sbatch, profiles []string
	batches          []int
	steps, batch     int
	lambda, deadline float64
	from, out        string
}

func newProfileJob(g *globals) *cobra.Command {
	var o profileJobOptions
	cmd := &cobra.Command{
		Use:   "profile-job [--sbatch OPTION]... (SCRIPT [ARGUMENT...] | --from FILE)",
		Short: "Run a batch script on each profile, and say how fast it is there and which one to take",
		Long: `profile-job submits a batch script once for each profile and batch size, as who calls it, waits until all have ended, and says of each how long it ran, how much memory
it had in use and how fast it was compared with the largest profile. Script or --sbatch must ask for a GPU on each node (--gres=gpu:1); the script may be no array. With --batches
the script finds its batch size in CAELUM_BATCH and the number of steps in CAELUM_STEPS, and DynaP's choice is said for each batch size: lambda times the share by which a step is
shorter than with the largest batch size that fits on the profile, and 1 - lambda times the share by which more is done in a second (F). The jobs may run at the same time;
--sbatch=--dependency=singleton runs one after the other. Ctrl-C cancels those that have not ended.`,
		Example: `  caelum profile-job --sbatch=--gres=gpu:1 --profiles 1g.5gb,2g.10gb,7g.40gb train.sh
  caelum profile-job --batches 8,16,32 --steps 1000 --deadline 0.2 --out train.jsonl train.sh --epochs 1
  caelum profile-job --from train.jsonl --lambda 1`,
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
	f.SetInterspersed(false) // what follows the script is the script's
	f.StringVar(
		&o.config,
		"config",
		agent.DefaultConfig,
		"caelumd's configuration, for the keys table and accounting_field",
	)
	f.StringVar(&o.table, "table", "", "the decision table; default: the configuration's table")
	f.StringVar(&o.board, "board", "", "the board; default: the decision table's, or the first that has the profiles")
	f.StringArrayVar(&o.sbatch, "sbatch", nil, "an option for sbatch; may be given several times")
	f.StringSliceVar(&o.profiles, "profiles", nil, "on which profiles; default: every plain one of the board")
	f.IntSliceVar(&o.batches, "batches", nil, "with which batch sizes")
	f.IntVar(&o.steps, "steps", 0, "how many steps the script does")
	f.Float64Var(&o.lambda, "lambda", 0.5, "weight of a short step against much work in a second, from 0 to 1")
	f.Float64Var(&o.deadline, "deadline", 0, "seconds in which a step must be done; 0: any time")
	f.StringVar(&o.out, "out", "", "write the measurements to this file, one JSON object a line")
	f.StringVar(&o.from, "from", "", "judge the measurements of this file, and submit nothing")
	f.IntVar(&o.batch, "batch", 0, "with --from: judge this batch size alone")
	return cmd
}

func (o profileJobOptions) check(args []string) error {
	bad := func(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }
	switch {
	case (o.from == "") == (len(args) == 0):
		return bad("name a batch script, or measurements with --from")
	case o.from != "" && (len(o.sbatch)+len(o.profiles)+len(o.batches)+o.steps > 0 || o.out != ""):
		return bad("--from submits nothing: --sbatch, --profiles, --batches, --steps and --out are for a script")
	case o.from == "" && o.batch != 0:
		return bad("--batch is for --from; for a script give --batches")
	case !(o.lambda >= 0 && o.lambda <= 1):
		return bad("--lambda %v is not from 0 to 1", o.lambda)
	case !(o.deadline >= 0):
		return bad("--deadline %v: want seconds", o.deadline)
	case o.steps < 0 || o.batch < 0:
		return bad("--steps and --batch are not below 0")
	}
	for _, n := range o.batches {
		if n < 1 {
			return bad("--batches: %d is no batch size", n)
		}
	}
	for _, s := range o.sbatch {
		if !strings.HasPrefix(s, "-") {
			return bad("--sbatch %s is no option: write --sbatch=--gres=gpu:1", s)
		}
	}
	return nil
}

func runProfileJob(ctx context.Context, w io.Writer, g *globals, o profileJobOptions, script []string) error {
	cfg, err := agent.LoadConfig(o.config)
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
		return fmt.Errorf("there is no measurement of batch size %d in %s", o.batch, o.from)
	}
	j := judge(b, runs, o.batch, predict.Goal{Lambda: o.lambda, Deadline: o.deadline})
	if g.json {
		return printJSON(w, j)
	}
	return printJudged(w, j)
}

// defaultProfiles are the plain ones of --board, else those of the GPU model that the decision table's default is of.
func (o *profileJobOptions) defaultProfiles(cfg agent.Config) error {
	if len(o.profiles) > 0 {
		return nil
	}
	t, err := o.decisions(cfg)
	switch {
	case len(t.Models) > 0:
		o.profiles = profileNames(t.Models[0])
		return nil
	case err != nil:
		return fmt.Errorf("name the --profiles, or a --board: %w", err)
	}
	return usageError{
		errors.New("name the --profiles, or a --board: there is no decision table here to take them from"),
	}
}

// boardWith is the GPU model that is named; else the first that has all of the profiles, of the decision table's and
// then of all.
func (o profileJobOptions) modelWith(cfg agent.Config, profiles []string) (*mig.Model, error) {
	var among []*mig.Model
	if o.board != "" {
		b, err := modelNamed(o.board)
		if err != nil {
			return nil, err
		}
		among = append(among, b)
	} else {
		// Without a table that can be read the profiles' names have to do.
		known, err := o.decisions(cfg)
		if err != nil && o.table != "" {
			return nil, err
		}
		among = append(known.Models, mig.Models()...)
	}
	for _, b := range among {
		if !slices.ContainsFunc(profiles, func(name string) bool { _, ok := b.ProfileIndex(name); return !ok }) {
			return b, nil
		}
	}
	return nil, usageError{
		fmt.Errorf(
			"no board has all of %s: `caelum profiles` lists what there is",
			printable(strings.Join(profiles, ", ")),
		),
	}
}

// measure submits the script for each batch size and profile, and waits for all. If it cannot go on it cancels what has
// not ended.
func (o profileJobOptions) measure(
	ctx context.Context,
	cfg agent.Config,
	script []string,
) (ended []measurement, err error) {
	out := io.Discard
	if o.out != "" {
		f, err := os.Create(o.out)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		out = f
	}
	var jobs []measurement
	defer func() {
		if err != nil && len(jobs) > len(ended) {
			err = cancelled(err, jobs[len(ended):])
		}
	}()
	batches := o.batches
	if len(batches) == 0 {
		batches = []int{0}
	}
	for _, batch := range batches {
		for _, profile := range o.profiles {
			m := measurement{Profile: profile, Batch: batch, Steps: o.steps, Util: -1}
			if m.Job, err = o.submit(ctx, m, script); err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "submitted job %d: %s\n", m.Job, m.what())
			jobs = append(jobs, m)
		}
	}
	lines := json.NewEncoder(out)
	for _, m := range jobs {
		if m, err = await(ctx, cfg, m); err != nil {
			return ended, err
		}
		ended = append(ended, m)
		if err = lines.Encode(m); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

var errInterrupted = errors.New("interrupted")

// submit answers the job's id. A submission that has begun is finished whatever happens, since its job could not be
// cancelled otherwise. A requeued job would be two runs.
func (o profileJobOptions) submit(ctx context.Context, m measurement, script []string) (uint32, error) {
	if ctx.Err() != nil {
		return 0, errInterrupted
	}
	args := append(o.sbatch[:len(o.sbatch):len(o.sbatch)], "--parsable", "--no-requeue", "--mig="+m.Profile)
	if m.Batch > 0 {
		args = append(args, fmt.Sprintf("--export=ALL,CAELUM_BATCH=%d,CAELUM_STEPS=%d", m.Batch, m.Steps))
	}
	cmd := exec.Command("sbatch", append(args, script...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's Ctrl-C is not for it
	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("sbatch for %s: %w", m.what(), err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(text)), ";") // and the cluster
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("sbatch for %s answered %.40q, which is no job's id", m.what(), text)
	}
	return uint32(n), nil
}

// await asks slurmdbd how a job has ended until it knows.
func await(ctx context.Context, cfg agent.Config, m measurement) (measurement, error) {
	ctl, wait := slurm.New(slurm.Options{Sacct: "sacct"}), summaryWait
	field, err := cfg.Field()
	if err != nil {
		field, wait = slurm.AdminComment, 0
	}
	for told := false; ; {
		records, err := ctl.RecordsOf(ctx, field, m.Job)
		switch {
		case ctx.Err() != nil:
			return m, errInterrupted
		case err == nil && strings.Contains(records[0].Ref, "_"):
			return m, fmt.Errorf("job %d is an array: measure one of its tasks, without --array", m.Job)
		case err == nil:
			if done, over, err := m.ended(records[len(records)-1], time.Now(), wait); over || err != nil {
				return done, err
			}
		case errors.Is(err, slurm.ErrNoJob): // slurmdbd is told a little later
		case errors.Is(err, slurm.ErrNoAccounting):
			if !told {
				fmt.Fprintln(os.Stderr, "caelum: "+printable(err.Error())+"; asking on")
			}
			told = true
		default:
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, errInterrupted
		case <-time.After(lookEvery):
		}
	}
}

// cancelled cancels jobs, and says so behind why.
func cancelled(why error, jobs []measurement) error {
	var ids []string
	for _, m := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(m.Job), 10))
	}
	cmd := exec.Command("scancel", append([]string{"--quiet"}, ids...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a second Ctrl-C must not end it
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf(
			"%w; couldn't cancel the jobs %s, do it with scancel: %w: %.200s",
			why,
			strings.Join(ids, " "),
			err,
			text,
		)
	}
	return fmt.Errorf("%w; cancelled the jobs %s", why, strings.Join(ids, " "))
}
