// Command caelumd is the agent of a GPU node. It manages the MIG instances of the node's GPUs and leases slices to
// Slurm jobs. "caelumd close" withdraws a node's offers. This package only reads the configuration and then creates and
// connects the components. The agent itself is in package agent.
//
// Files:
//
//	main.go     the agent, and close
//	check.go    check: prints each fault of a configuration file
//	schema.go   schema: the versions of the database schemas, compared with another release
//	observe.go  observe: records the memory of jobs before Caelum is configured
//	shadow.go   shadow: prints what Caelum would plan now
//	qualify.go  qualify: tests the assumptions about the driver
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/repo"
	"caelum/internal/daemon"
	"caelum/internal/node/agent"
	"caelum/internal/node/gpu"
	"caelum/internal/node/ledger"
	"caelum/internal/node/publish"
	"caelum/internal/slurm"
	"caelum/internal/trust"
	"caelum/internal/version"
)

func main() {
	if err := command().Execute(); err != nil {
		failed := statusError{status: 1}
		errors.As(err, &failed)
		if !failed.quiet {
			fmt.Fprintln(os.Stderr, "caelumd:", daemon.Printable(err))
		}
		os.Exit(failed.status)
	}
}

func command() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "caelumd",
		Short: "Caelum's node agent: creates MIG slices for Slurm jobs",
		Long: `caelumd runs as root on every GPU node. It carves MIG slices for the jobs that slurmctld starts on
the node, releases them when the jobs end, and publishes the free slices as gres/mig.

EXIT STATUS
  0  a signal stopped caelumd (SIGTERM, SIGINT)
  1  caelumd could not start or continue; the reason is on standard error`,
		Args:          cobra.NoArgs,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return serve(path) },
	}
	cmd.PersistentFlags().StringVar(&path, "config", config.DefaultPath, "configuration file")
	cmd.AddCommand(&cobra.Command{
		Use:   "close",
		Short: "Withdraw all offers of this node, after the agent has stopped",
		Long: `close sets this node's gres/mig counts in slurmctld to 0, so that slurmctld starts no more jobs on
the node's slices. Running jobs are not affected. No agent needs to be running. caelumd.service runs
it as its ExecStopPost command.

EXIT STATUS
  0  the offers are withdrawn
  1  slurmctld could not be updated; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return closeOffers(path) },
	}, daemon.VersionCommand("caelumd"), newSchema(&path), newCheck(&path),
		daemon.ConfigCommand(&path, config.Watcher), newShadow(&path), newObserve(&path), newQualify(&path),
		newQualifyHelper())
	return cmd
}

func serve(path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("the agent must run as root to create GPU instances and device files; start the agent " +
			"with systemd")
	}
	for _, path := range []string{
		filepath.Join(cfg.RunDir, "caelumd.sock"),
		filepath.Join(cfg.StateDir, "ledger.db"),
		cfg.Repo,
	} {
		if err := trust.Directory(path); err != nil {
			return err
		}
	}
	log := daemon.Logger(cfg)
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{Dev: cfg.DeviceDir, Proc: "/proc"})
	if err != nil {
		return err
	}
	defer hw.Close()
	ctl := nodeClient()
	a, err := agent.New(cfg, hw, ctl, log.WithField("node", cfg.Node))
	if err != nil {
		return err
	}
	if err := ctl.CheckShow(context.Background()); err != nil {
		log.WithError(err).Warn("couldn't run caelum-show; install the caelum-spank package for this release of " +
			"Slurm. Until then, slurmctld sends the agent the records of all nodes")
	}
	runs := repo.At(cfg.Repo, func(text string) { log.Warn(text) })
	defer runs.Close()
	a.Keep(runs, ctl)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go daemon.SaveMemory(ctx)
	return a.Run(ctx)
}

// nodeClient returns the agent's Slurm client. caelum-show is installed in the directory of caelumd.
func nodeClient() *slurm.Client {
	var opt slurm.Options
	if own, err := os.Executable(); err == nil {
		opt.Show = filepath.Join(filepath.Dir(own), "caelum-show")
	}
	return slurm.New(opt)
}

// closeOffers withdraws this node's offers. If the configuration is invalid, it uses the defaults and the node name in
// the ledger, because the agent cannot run with that configuration and jobs must not start on slices that no agent
// manages.
func closeOffers(path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "caelumd:", err)
		cfg = config.Defaults()
		cfg.Node = cmp.Or(known(cfg.StateDir, "node"), cfg.Node)
		fmt.Fprintf(os.Stderr, "caelumd: withdrawing the offers of %s with the default configuration\n", cfg.Node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	total, _ := strconv.Atoi(known(cfg.StateDir, "total"))
	return publish.CloseOffers(ctx, nodeClient(), cfg.Node, total)
}

// known returns a note that the agent wrote to its ledger, such as the node's constant gres/mig total. It returns "" if
// there is no such note or the ledger cannot be read.
func known(stateDir, note string) string {
	path := filepath.Join(stateDir, "ledger.db")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	l, err := ledger.Open(path)
	if err != nil {
		return ""
	}
	defer l.Close()
	text, _ := l.Meta(note)
	return text
}
