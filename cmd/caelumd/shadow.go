package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/gpu"
	"caelum/internal/mig"
	"caelum/internal/plan"
	"caelum/internal/shadow"
	"caelum/internal/slurm"
)

// shadowOptions contains the flags of caelumd shadow.
type shadowOptions struct {
	profile    string
	once, json bool
}

func newShadow(path *string) *cobra.Command {
	var o shadowOptions
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Print what the agent would do on this node, without changing anything",
		Long: `shadow is a trial without risk. It reads the GPUs and slurmctld every poll_interval, and prints the
slices that Caelum would carve if it managed this node: for the jobs that run on the node now, for the
waiting jobs that would start, and for jobs to come. It prints a pass only if the plan has changed.

shadow needs neither MIG mode nor the slices in slurm.conf, and may run beside the node's present jobs
and configuration. It contains no call that changes a GPU, a file or slurmctld. Root is not necessary:
for other users, the profiles come from Caelum's own table of GPU models, and slurmctld may hide the
jobs of other users (PrivateData).

Each pass begins with the jobs that run now, as if Caelum had started them, so a pass does not include
the effects of earlier passes. A job with one GPU that names no profile gets the profile in --profile,
and a job with several GPUs gets whole GPUs. A single pass (--once) takes a few seconds. To see the
usual load, let shadow run for a working day. To compare waiting times, use caelum simulate.

EXIT STATUS
  0  a signal stopped shadow (SIGTERM, SIGINT), or --once is set
  1  shadow could not start, or --once is set and the pass failed; the reason is on standard error`,
		Example: `  caelumd shadow --profile 2g.10gb --once`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runShadow(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), *path, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profile, "profile", "", "the profile of a job with one GPU that names none; "+
		"default: default_profile in the configuration file")
	f.BoolVar(&o.once, "once", false, "print one pass")
	f.BoolVar(&o.json, "json", false, "print each pass as a line of JSON")
	return cmd
}

func runShadow(ctx context.Context, out, errout io.Writer, path string, o shadowOptions) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary)
	if err != nil {
		return err
	}
	defer hw.Close()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	t := trial{hw: hw, ctl: slurm.New(slurm.Options{}), now: time.Now, out: out, errout: errout, options: o}
	return t.run(ctx, cfg)
}

// gpuLister is the part of the driver that a trial uses. *gpu.NVML implements it.
type gpuLister interface{ GPUs() ([]gpu.GPU, error) }

// trial prints the passes of a node. Its interfaces contain no call that changes the GPUs or slurmctld.
type trial struct {
	hw          gpuLister
	ctl         plan.Controller
	now         func() time.Time
	out, errout io.Writer
	options     shadowOptions
}

// run prints the passes until ctx ends, or one pass.
func (t trial) run(ctx context.Context, cfg config.Config) error {
	node, err := t.node(cfg)
	if err != nil {
		return err
	}
	last := ""
	for {
		pass, err := t.pass(ctx, node)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && t.options.once:
			return err
		case err != nil:
			fmt.Fprintf(t.errout, "caelumd: couldn't plan the node: %s; trying again\n", printable(err))
		case pass.Text() != last:
			if err := t.print(pass); err != nil {
				return err
			}
			last = pass.Text()
		}
		if t.options.once {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cfg.PollInterval):
		}
	}
}

// node discovers the node's GPUs.
func (t trial) node(cfg config.Config) (*shadow.Node, error) {
	profile := cmp.Or(t.options.profile, cfg.DefaultProfile)
	if profile == "" {
		return nil, errors.New("the profile of jobs that name none is unknown; set --profile, for example 2g.10gb")
	}
	settings, err := cfg.Planning()
	if err != nil {
		return nil, err
	}
	whole, err := mig.ParseWhole(cmp.Or(cfg.WholeGPUs, "never"))
	if err != nil {
		return nil, fmt.Errorf("whole_gpus: %w", err)
	}
	found, err := t.hw.GPUs()
	if err != nil {
		return nil, err
	}
	return shadow.NewNode(cfg.Node, settings, found, cfg.Profiles, whole, profile)
}

// pass reads slurmctld and plans the node.
func (t trial) pass(ctx context.Context, node *shadow.Node) (shadow.Pass, error) {
	snapshot, err := plan.Read(ctx, t.ctl, t.now)
	if err != nil {
		return shadow.Pass{}, err
	}
	return node.Pass(snapshot)
}

func (t trial) print(p shadow.Pass) error {
	if t.options.json {
		return json.NewEncoder(t.out).Encode(p)
	}
	_, err := fmt.Fprintf(t.out, "%s  %s\n", p.At.Format(time.DateTime), p.Text())
	return err
}
