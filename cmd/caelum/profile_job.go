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
)

// profileJobOptions holds the flags of caelum profile-job.
type profileJobOptions struct {
	repoOptions
	sbatch, profiles []string
}

func newProfileJob(g *globals) *cobra.Command {
	o := profileJobOptions{repoOptions: repoOptions{globals: g}}
	cmd := &cobra.Command{
		Use:   "profile-job [--sbatch OPTION]... SCRIPT [ARGUMENT...]",
		Short: "Run a batch script on each profile, and compare speed and memory",
		Long: `profile-job submits a batch script as the calling user, once for each profile, and waits until all
jobs have ended. For each job, it prints the run time, the memory usage, and the speed relative to the
largest profile.

The script or --sbatch must request a GPU on each node (--gres=gpu:1). Array jobs are not supported.
The jobs may run at the same time; to run them one after the other, add
--sbatch=--dependency=singleton. Ctrl-C cancels the jobs that have not ended.`,
		Example: `  caelum profile-job --sbatch=--gres=gpu:1 --profiles 1g.5gb,2g.10gb,7g.40gb train.sh
  caelum profile-job train.sh --epochs 1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range o.sbatch {
				if !strings.HasPrefix(s, "-") {
					return usageError{fmt.Errorf("--sbatch: %q is not an sbatch option; specify one, as in "+
						"--sbatch=--gres=gpu:1", s)}
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runProfileJob(ctx, cmd.OutOrStdout(), g, o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the script are the script's own arguments
	f.StringVar(&o.table, "table", "", "the decision table; default: the path set by the table key in the "+
		"configuration file")
	f.StringVar(&o.model, "board", "",
		"the GPU model; default: the first model with these profiles in the decision table, or in Caelum's tables")
	f.StringArrayVar(&o.sbatch, "sbatch", nil, "an option for sbatch; can be repeated")
	f.StringSliceVar(&o.profiles, "profiles", nil,
		"profiles to measure; default: all profiles of the GPU model except variants")
	return cmd
}

func runProfileJob(ctx context.Context, w io.Writer, g *globals, o profileJobOptions, script []string) error {
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	b, err := o.modelWith(cfg)
	if err != nil {
		return err
	}
	runs, err := o.measure(ctx, cfg, script)
	if err != nil {
		return err
	}
	c := compare(b, runs)
	if g.json {
		return printJSON(w, c)
	}
	return c.print(w)
}

// modelWith returns the GPU model given by --board or, without --board, the first one that has all profiles, from the
// decision table or from Caelum's tables. Without --profiles, it sets them to those of the first model in the table.
func (o *profileJobOptions) modelWith(cfg config.Config) (*mig.Model, error) {
	t, err := o.decisions(cfg)
	switch {
	case err != nil && (o.model != "" || o.table != "" && len(o.profiles) > 0):
		return nil, err
	case err != nil && len(o.profiles) == 0:
		return nil, fmt.Errorf("use --profiles or --board: %w", err)
	case len(o.profiles) == 0 && len(t.Models) == 0:
		return nil, usageError{errors.New("use --profiles or --board, because this host has no decision table")}
	case len(o.profiles) == 0:
		o.profiles = profileNames(t.Models[0])
	}
	candidates := append(t.Models, mig.Models()...)
	if o.model != "" {
		b, err := modelNamed(o.model)
		if err != nil {
			return nil, err
		}
		candidates = []*mig.Model{b}
	}
	for _, b := range candidates {
		if !slices.ContainsFunc(o.profiles, func(name string) bool { _, ok := b.ProfileIndex(name); return !ok }) {
			return b, nil
		}
	}
	return nil, usageError{fmt.Errorf("no GPU model has all of the profiles %s; `caelum profiles BOARD` lists the "+
		"profiles of a model", printable(strings.Join(o.profiles, ", ")))}
}
