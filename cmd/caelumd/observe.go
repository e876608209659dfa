package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/repo"
	"caelum/internal/daemon"
	"caelum/internal/node/gpu"
	"caelum/internal/node/usage"
	"caelum/internal/slurm"
)

// observedPath is the default of observe's --output flag.
const observedPath = "/var/lib/caelum/observed.jsonl"

func newObserve(path *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Record what jobs use on this node, without changing anything",
		Long: `observe records the GPU memory that jobs use on a node that Caelum does not manage, so that you know
the sizes of your jobs before you install Caelum. It changes neither a GPU nor slurmctld's state. It
needs neither MIG mode nor slices in slurm.conf, and also observes static MIG devices.

Every sample_interval, observe reads the processes on each GPU and their memory from the driver. It
finds the job of a process by the process's cgroup or, without one, by asking slurmstepd (scontrol
listpids). Every poll_interval, it reads the node's jobs from slurmctld. When a job has ended, it
appends a line of JSON to the file given by --output:

  job, restart, node, uid, user, account, partition, name, state   from slurmctld
  key, work             the job key and the script fingerprint, as job_submit.lua would compute them
  submit, start, seconds, limit   when the job became eligible and started, its run time, its limit
  nodes, gpus           the number of nodes, and of GPUs that the job requested on each node
  board, profile        the GPU model, and the profile of the static MIG device; for a whole GPU, the
                        largest profile
  slices, devices       the number of devices that the job used, and their peaks
  samples, processes    the number of samples (0: unknown usage), and the most processes in one
  peak_mib, median_mib, p95_mib   the memory of the job's processes on the device with the highest
                        peak
  util                  the mean share of busy SMs, from 0 to 1, on GPUs that count it (since Hopper)
  gpu_util              the mean share of time for which a program ran on the GPU
  exit, end, ...        not used

util and gpu_util are -1 if they are unknown, and only include samples in which the job was the only
user of its device. If a job started before observe, its usage is unknown. A job that is still
running when observe stops is not recorded.

At 64 MiB, the file is renamed to FILE.1, which replaces an earlier one. "caelum simulate --observed"
and "caelum repo import" read these files.

Run observe as root: only root may read all processes' memory in MIG mode and the scripts of jobs.

EXIT STATUS
  0  a signal stopped observe (SIGTERM, SIGINT)
  1  observe could not start; the reason is on standard error`,
		Example: `  caelumd observe --output /var/lib/caelum/observed.jsonl`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runObserve(cmd.Context(), *path, output) },
	}
	cmd.Flags().StringVar(&output, "output", observedPath, "the `file` to which observe appends the runs")
	return cmd
}

func runObserve(ctx context.Context, path, output string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if cfg.SampleInterval == 0 {
		return errors.New("sample_interval is 0 in caelum.yaml; remove it, or set it to 1s")
	}
	if output == observedPath {
		if err := os.MkdirAll(filepath.Dir(output), 0o700); err != nil {
			return err
		}
	}
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{}) // a trial does not prepare capability files
	if err != nil {
		return err
	}
	defer hw.Close()
	file, err := repo.OpenObserved(output)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	processes := &gpu.Processes{Proc: "/proc"}
	o := usage.Observer{
		Node: cfg.Node, Hardware: hw, Slurm: slurm.New(slurm.Options{}),
		Cgroups: processes.Cgroups, Started: processes.Started, Record: file.Append,
		Now: time.Now, Clock: usage.Monotonic, Log: daemon.Logger(cfg).WithField("node", cfg.Node),
	}
	go daemon.SaveMemory(ctx)
	return o.Run(ctx, cfg.SampleInterval, cfg.PollInterval)
}
