package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/shadow"
	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

func newShadow(path *string) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Print what the agent would do on this node, without changing anything",
		Long: `shadow lets you try Caelum without risk. It reads the GPUs and slurmctld's records, makes the plan
that Caelum would make if it managed this node, and prints it: the slices of the jobs that are
running on the node now, the slices of the waiting jobs that would start now, and the slices that
would be free for further jobs.

shadow needs neither MIG mode nor slices in slurm.conf, and does not interfere with the node's
present jobs and configuration: it makes no calls that change a GPU, a file or slurmctld. In the
output, "now:" is followed by what prevents an agent from using a GPU in its present state. shadow
need not run as root. If it does not run as root, the profiles come from Caelum's own table of GPU
models, and slurmctld may hide other users' jobs (PrivateData).

A job that requests one GPU and names no profile gets the one given by --profile or, with "sizing:
adaptive" in caelum.yaml (the default) and while GPUs are idle, a larger one. A job with several GPUs
gets whole GPUs. To compare waiting times, use caelum simulate.

EXIT STATUS
  0  the plan is printed
  1  the GPUs or slurmctld could not be read; the reason is on standard error`,
		Example: `  caelumd shadow --profile 2g.10gb
  watch -n 60 caelumd shadow --profile 2g.10gb`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(*path)
			if err != nil {
				return err
			}
			hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{}) // a trial does not prepare capability files
			if err != nil {
				return err
			}
			defer hw.Close()
			cfg.DefaultProfile = cmp.Or(profile, cfg.DefaultProfile)
			return trial(cmd.Context(), cmd.OutOrStdout(), cfg, hw, slurm.New(slurm.Options{}), time.Now())
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "the profile for jobs that request one GPU and name none; "+
		"default: default_profile in the configuration file")
	return cmd
}

// gpuLister is the subset of the driver's methods that a trial uses. *gpu.NVML implements it.
type gpuLister interface{ GPUs() ([]gpu.GPU, error) }

// trial prints the plan for a node. Its interfaces have no methods that modify the GPUs or slurmctld. Jobs that name no
// profile get cfg's default profile.
func trial(
	ctx context.Context, out io.Writer, cfg config.Config, hw gpuLister, ctl slurm.Lister, now time.Time,
) error {
	if cfg.DefaultProfile == "" {
		return errors.New("the profile for jobs that name none is unknown; set --profile, for example " +
			"to 2g.10gb, or default_profile in caelum.yaml")
	}
	settings, err := cfg.Planning()
	if err != nil {
		return err
	}
	full, err := mig.ParseFullGPUs(cmp.Or(cfg.WholeGPUs, "never"))
	if err != nil {
		return fmt.Errorf("whole_gpus: %w", err)
	}
	found, err := hw.GPUs()
	if err != nil {
		return err
	}
	node, err := shadow.NewNode(cfg.Node, settings, found, cfg.Profiles, full, cfg.DefaultProfile)
	if err != nil {
		return err
	}
	nodes, queue, err := slurm.List(ctx, ctl)
	if err != nil {
		return err
	}
	pass, err := node.Pass(plan.Snapshot{Nodes: nodes, Queue: queue, At: now})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s", now.Format(time.DateTime), pass.Text())
	return err
}
