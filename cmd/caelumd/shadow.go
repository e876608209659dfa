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
	"caelum/internal/controller/shadow"
	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/daemon"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// shadowOptions holds the flags of caelumd shadow.
type shadowOptions struct {
	profile    string
	once, json bool
}

func newShadow(path *string) *cobra.Command {
	var o shadowOptions
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Print what the agent would do on this node, without changing anything",
		Long: `shadow lets you try Caelum without risk. It reads the GPUs and slurmctld's records, makes the plan
that Caelum would make if it managed this node, and prints it: the slices of the jobs that are
running on the node now, the slices of the waiting jobs that would start now, and the slices that
would be free for further jobs. This is called a pass. shadow makes a pass every poll_interval, but
prints the plan only if it has changed.

shadow needs neither MIG mode nor slices in slurm.conf, and does not interfere with the node's
present jobs and configuration: it makes no calls that change a GPU, a file or slurmctld. In the
output, "now:" is followed by what prevents an agent from using a GPU in its present state. shadow
need not run as root. If it does not run as root, the profiles come from Caelum's own table of GPU
models, and slurmctld may hide other users' jobs (PrivateData).

Each pass begins with the jobs that are running now, as if Caelum had started them, so it does not
include the effects of earlier passes. A job that requests one GPU and names no profile gets the one
given by --profile or, with "sizing: adaptive" in caelum.yaml (the default) and while GPUs are idle,
a larger one. A job with several GPUs gets whole GPUs. A single pass (--once) takes a few seconds.
To see the usual load, let shadow run for a working day. To compare waiting times, use caelum
simulate.

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
	f.StringVar(&o.profile, "profile", "", "the profile for jobs that request one GPU and name none; "+
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
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{}) // a trial does not prepare capability files
	if err != nil {
		return err
	}
	defer hw.Close()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	t := trial{hw: hw, ctl: slurm.New(slurm.Options{}), now: time.Now, out: out, errout: errout, options: o}
	return t.run(ctx, cfg)
}

// gpuLister is the subset of the driver's methods that a trial uses. *gpu.NVML implements it.
type gpuLister interface{ GPUs() ([]gpu.GPU, error) }

// trial prints a node's passes. Its interfaces have no methods that modify the GPUs or slurmctld.
type trial struct {
	hw          gpuLister
	ctl         slurm.Lister
	now         func() time.Time
	out, errout io.Writer
	options     shadowOptions
}

// run prints passes until ctx is done, or just one pass with --once.
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
			fmt.Fprintf(t.errout, "caelumd: couldn't make a pass: %s; trying again in %v\n", daemon.Printable(err),
				cfg.PollInterval)
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
		return nil, errors.New("the profile for jobs that name none is unknown; set --profile, for example " +
			"to 2g.10gb, or default_profile in caelum.yaml")
	}
	settings, err := cfg.Planning()
	if err != nil {
		return nil, err
	}
	full, err := mig.ParseFullGPUs(cmp.Or(cfg.WholeGPUs, "never"))
	if err != nil {
		return nil, fmt.Errorf("whole_gpus: %w", err)
	}
	found, err := t.hw.GPUs()
	if err != nil {
		return nil, err
	}
	return shadow.NewNode(cfg.Node, settings, found, cfg.Profiles, full, profile)
}

// pass reads the nodes and jobs from slurmctld and makes a plan for the node.
func (t trial) pass(ctx context.Context, node *shadow.Node) (shadow.Pass, error) {
	nodes, queue, err := slurm.List(ctx, t.ctl)
	if err != nil {
		return shadow.Pass{}, err
	}
	return node.Pass(plan.Snapshot{Nodes: nodes, Queue: queue, At: t.now()})
}

func (t trial) print(p shadow.Pass) error {
	if t.options.json {
		return json.NewEncoder(t.out).Encode(p)
	}
	_, err := fmt.Fprintf(t.out, "%s  %s\n", p.At.Format(time.DateTime), p.Text())
	return err
}
