package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/node/jobcgroup"
	"caelum/internal/node/qualify"
	"caelum/internal/slurm"
	"caelum/internal/trust"
)

// The exit statuses of qualify.
const (
	exitUnusable    = 1
	exitRefused     = 2
	exitNotRestored = 3
	exitIncomplete  = 4
)

// statusError is an error with an exit status. If quiet is true, the command has already printed the reason.
type statusError struct {
	error
	status int
	quiet  bool
}

func (e statusError) Unwrap() error { return e.error }

// qualifyOptions holds the flags of caelumd qualify.
type qualifyOptions struct {
	readOnly, withoutSlurm, stopAgent, modeSwitch bool
	cuda, json                                    string
}

func newQualify(path *string) *cobra.Command {
	var o qualifyOptions
	cmd := &cobra.Command{
		Use:   "qualify",
		Short: "Check whether this node's driver and GPUs behave as Caelum assumes",
		Long: `qualify takes at most five minutes on a drained node. It creates an instance of each profile at each
free placement, twice, and compares what the driver does with the assumptions that Caelum rests on
(docs/driver.md). It prints one row for each assumption, with the result "holds", "differs" or "not
checked", what follows from a difference, and a verdict.

qualify leaves the node as it found it. It removes its instances and capability files and restores
owners and modes, also after ctrl-C or a failed call. If it is killed, the next run names and
removes what is left, according to a journal in state_dir. It keeps the instances of other programs
and tests only free placements. On a GPU whose MIG mode is off, it creates nothing.

It must run as root, and it refuses to run if slurmctld does not report the node as drained, if the
node has jobs, or if the agent is running. On a node that does not belong to a Slurm cluster yet,
use --without-slurm: then no one else checks that the GPUs are idle, so end all programs that use
them first.

--read-only creates nothing and checks what is possible without instances. It may run at any time.

--mode-switch also switches MIG mode off and on again on one GPU of each model that has no instances
of other programs. On Ampere, this resets the GPU.

--cuda PROGRAM lets a CUDA program use a slice. The program must run for at least 20 seconds. Without
it, the rows on slices in use are not checked.

If caelum.yaml divides GPUs without MIG into fractions, qualify also tests the driver's memory limits on
one of them. It creates two cgroups beside those of jobs, and its own processes allocate memory there
with the driver's libcuda.so.1.

--json FILE writes a record that you can send to Caelum's authors. It has the driver's release, the
GPUs' names, instance ids, SMs, memory and times, and no host names, serial numbers or UUIDs.

EXIT STATUS
  0  no check found a reason not to use Caelum on this node
  1  Caelum must not be used on this node: an assumption differs that it cannot do without
  2  the command line is wrong, or qualify refused to run; nothing was changed
  3  the node is not as it was before; run qualify again, which removes what is left
  4  the checks were interrupted or failed; the node is as it was before`,
		Example: `  caelumd qualify --cuda "/opt/cuda-samples/nbody -benchmark -numbodies=1000000" --json node.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQualify(cmd.Context(), cmd.OutOrStdout(), *path, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.readOnly, "read-only", false, "create nothing")
	f.BoolVar(&o.withoutSlurm, "without-slurm", false, "do not ask slurmctld whether the node is drained")
	f.BoolVar(&o.stopAgent, "stop-agent", false, "stop caelumd.service, and start it again at the end")
	f.BoolVar(&o.modeSwitch, "mode-switch", false, "also switch MIG mode off and on again")
	f.StringVar(&o.cuda, "cuda", "", "the command line of a CUDA `program` that runs for at least 20 seconds")
	f.StringVar(&o.json, "json", "", "write a record of the results to this `file`")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return refuse(err) })
	return cmd
}

// newQualifyHelper returns the command that qualify runs as its second process.
func newQualifyHelper() *cobra.Command {
	return &cobra.Command{
		Use:                qualify.HelperCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return qualify.Helper(args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func refuse(err error) error { return statusError{error: err, status: exitRefused} }

func runQualify(ctx context.Context, out io.Writer, path string, o qualifyOptions) error {
	cfg, err := config.Load(path)
	if err != nil {
		return refuse(err)
	}
	if os.Geteuid() != 0 {
		return refuse(errors.New("qualify must run as root to create instances; run it with sudo"))
	}
	if cfg.NVMLLibrary != "" && strings.Contains(cfg.NVMLLibrary, "/") {
		if cfg.NVMLLibrary, err = trust.Path(cfg.NVMLLibrary); err != nil {
			return refuse(err)
		}
	}
	opt := qualify.Options{
		Library: cfg.NVMLLibrary, Dev: cfg.DeviceDir, Proc: "/proc", StateDir: cfg.StateDir, ReadOnly: o.readOnly,
		ModeSwitch: o.modeSwitch, CUDA: strings.Fields(o.cuda), Modprobe: "/usr/bin/nvidia-modprobe", Out: out,
		StartAgent: func() error { return systemctl("start") },
		Fractions:  cfg.Fractions, Cgroups: jobcgroup.Options{Node: cfg.Node},
	}
	if cfg.FractionLimits != config.LimitsDriver {
		opt.Fractions = nil // nothing depends on the driver's limits
	}
	if len(opt.CUDA) > 0 {
		if opt.CUDA[0], err = program(opt.CUDA[0]); err != nil {
			return refuse(err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	if !o.readOnly {
		if !o.withoutSlurm {
			if err := drained(ctx, nodeClient(), cfg.Node); err != nil {
				return refuse(err)
			}
		}
		if err := trust.Directory(filepath.Join(cfg.StateDir, "qualify.journal")); err != nil {
			return refuse(err)
		}
		if on := running(cfg.RunDir); on && !o.stopAgent {
			return refuse(errors.New("the agent is running; use --stop-agent, or `systemctl stop caelumd`"))
		} else if on {
			opt.StopAgent = func() error { return systemctl("stop") }
		}
	}
	rep, err := qualify.Run(ctx, opt)
	return conclude(out, o.json, rep, err)
}

// conclude prints the report and returns the error with the command's exit status.
func conclude(out io.Writer, file string, rep *qualify.Report, err error) error {
	if rep != nil {
		if e := rep.Print(out); err == nil && e != nil {
			err = e
		}
		if file != "" {
			err = errors.Join(err, rep.Record.Write(file))
		}
	}
	switch {
	case errors.Is(err, qualify.ErrLeft):
		return statusError{error: err, status: exitNotRestored}
	case err != nil && rep == nil:
		return refuse(err)
	case err != nil:
		return statusError{error: err, status: exitIncomplete}
	case !rep.Usable():
		return statusError{error: errors.New(rep.Verdict()), status: exitUnusable, quiet: true}
	}
	return nil
}

// nodeReader is the subset of the Slurm client's methods that drained uses.
type nodeReader interface {
	Node(ctx context.Context, name string) (slurm.Node, error)
	JobsOn(ctx context.Context, node string) ([]slurm.Job, error)
}

// drained returns an error unless slurmctld reports the node as drained and without jobs.
func drained(ctx context.Context, ctl nodeReader, name string) error {
	node, err := ctl.Node(ctx, name)
	if err != nil {
		return fmt.Errorf("couldn't ask slurmctld whether the node is drained: %w; on a node without Slurm, use "+
			"--without-slurm", err)
	}
	if !node.Is("DRAIN") {
		return fmt.Errorf("node %s is not drained; run `scontrol update NodeName=%s State=DRAIN Reason=qualify`", name,
			name)
	}
	jobs, err := ctl.JobsOn(ctx, name)
	if err != nil {
		return fmt.Errorf("couldn't ask slurmctld for the node's jobs: %w", err)
	}
	for _, j := range jobs {
		if j.Holds() || j.State == "COMPLETING" {
			return fmt.Errorf("job %d is on node %s; wait until the node has no jobs", j.ID, name)
		}
	}
	return nil
}

// program returns the path of a program that only root can change.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", err
	}
	return trust.Path(path)
}

// running reports whether an agent listens. It uses the socket for root, whose queue users cannot fill.
func running(runDir string) bool {
	conn, err := net.DialTimeout("unix", filepath.Join(runDir, api.RootSocketName), time.Second)
	if err == nil {
		conn.Close()
	}
	return !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED)
}

func systemctl(verb string) error {
	if text, err := exec.Command("systemctl", verb, "caelumd.service").CombinedOutput(); err != nil {
		return fmt.Errorf("couldn't %s caelumd.service: %w: %s", verb, err, strings.TrimSpace(string(text)))
	}
	return nil
}
