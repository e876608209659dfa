// Command caelumd is the node agent: it owns the node's MIG and leases slices to Slurm jobs.
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

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/gpu"
	"caelum/internal/learn"
	"caelum/internal/ledger"
	"caelum/internal/place"
	"caelum/internal/repo"
	"caelum/internal/slurm"
	"caelum/internal/trust"
	"caelum/internal/wake"
	"caelum/internal/watch"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "caelumd:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "caelumd",
		Short: "Node agent of Caelum: cuts MIG slices for Slurm jobs",
		Long: `caelumd runs on every GPU node, as root. It cuts MIG slices for the jobs that slurmctld starts on the node, gives them
back when the jobs end, and publishes what is free as gres/mig.

EXIT STATUS
  0  it was told to stop (SIGTERM, SIGINT)
  1  it could not start or go on; the reason is on standard error`,
		Args:          cobra.NoArgs,
		Version:       agent.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return serve(config) },
	}
	cmd.PersistentFlags().StringVar(&config, "config", agent.DefaultConfig, "configuration file")
	cmd.AddCommand(&cobra.Command{
		Use:   "watch",
		Short: "On slurmctld's host: tell agents to look at the queue as soon as something is submitted",
		Long: `watch reads nodes and queue when job_submit.lua has seen a submission, or an agent has published, and sends those nodes whose offers are not what they should be
a datagram, which says "look now" and nothing else. Without it agents look every poll_interval. It runs as slurmctld's user, and needs wake_port in its
caelum.yaml as in the nodes', and the wake key, which it must own.

EXIT STATUS
  0  it was told to stop (SIGTERM, SIGINT)
  1  it could not start or go on; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return watchQueue(config) },
	}, &cobra.Command{
		Use:   "close",
		Short: "Take everything off offer on this node: run it when the agent has stopped",
		Long: `close writes the node's gres/mig counts to 0, so that slurmctld starts nothing more on its slices. Running jobs are not
touched. It is the ExecStopPost command of caelumd.service, and needs no agent.

EXIT STATUS
  0  the offers are closed
  1  slurmctld could not be told; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return closeOffers(config) },
	})
	return cmd
}

func serve(path string) error {
	cfg, err := agent.LoadConfig(path)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("must run as root: it makes GPU instances and device files")
	}
	for _, path := range []string{filepath.Join(cfg.RunDir, "caelumd.sock"), filepath.Join(cfg.StateDir, "ledger.db"), cfg.Repo} {
		if err := trust.Directory(path); err != nil {
			return err
		}
	}
	log := logger(cfg)
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary)
	if err != nil {
		return err
	}
	defer hw.Close()
	ctl := slurm.New(slurm.Options{})
	a, err := agent.New(cfg, hw, ctl, log.WithField("node", cfg.Node))
	if err != nil {
		return err
	}
	runs := repo.At(cfg.Repo, func(text string) { log.Warn(text) })
	defer runs.Close()
	a.Keep(runs, ctl)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return a.Run(ctx)
}

func logger(cfg agent.Config) *logrus.Logger {
	log := logrus.New()
	level, _ := logrus.ParseLevel(cfg.LogLevel) // checked by LoadConfig
	log.SetLevel(level)
	// coloured, on a terminal, it would not quote what users have named
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true})
	if cfg.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	}
	return log
}

func watchQueue(path string) error {
	cfg, err := agent.LoadOwnConfig(path)
	if err != nil {
		return err
	}
	if cfg.WakePort == 0 {
		return fmt.Errorf("%s: wake_port is not set: give the watcher and the nodes' agents the same", path)
	}
	policy, err := place.ByName(cfg.Policy)
	if err != nil {
		return err
	}
	log := logger(cfg).WithField("watcher", cfg.Node)
	key, err := wake.ReadKey(cfg.WakeKey, uint32(os.Geteuid()))
	if err != nil {
		log.WithError(err).Error("wake port not opened: no agent is told of submissions")
	}
	w := watch.New(watch.Config{
		TriggerFile: cfg.PokeFile, WakePort: cfg.WakePort, Address: cfg.WakeAddress, Name: cfg.Node, Key: key, Interval: cfg.PollInterval, Policy: policy,
	}, slurm.New(slurm.Options{}), log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if cfg.Learn {
		loop, err := learning(cfg)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		go loop.Run(ctx) // beside the watcher: a slow slurmdbd must keep no agent asleep
	}
	return w.Run(ctx)
}

// dbdTimeout is for one page of a sync: a day's jobs.
const dbdTimeout = 5 * time.Minute

// learning is what keeps the decision table up to date.
func learning(cfg agent.Config) (*learn.Loop, error) {
	field, err := cfg.Field()
	if err != nil {
		return nil, fmt.Errorf("learn: %w", err)
	}
	return &learn.Loop{
		Every: time.Minute, DBD: slurm.New(slurm.Options{Timeout: dbdTimeout}), Repo: cfg.Repo, Table: cfg.Table, Field: field, Site: cfg.Site(), Log: logger(cfg).WithField("learn", cfg.Table),
	}, nil
}

// closeOffers does what it can without a configuration: a mistake in the file ends the agent, and nothing may start on
// slices that nobody manages.
func closeOffers(path string) error {
	cfg, err := agent.LoadConfig(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "caelumd:", err)
		cfg = agent.Defaults()
		cfg.Node = cmp.Or(known(cfg.StateDir, "node"), cfg.Node)
		fmt.Fprintf(os.Stderr, "caelumd: closing the offers of %s without it\n", cfg.Node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	total, _ := strconv.Atoi(known(cfg.StateDir, "total"))
	return agent.CloseOffers(ctx, slurm.New(slurm.Options{}), cfg.Node, total)
}

// known is a note that the agent left in its ledger, such as the node's constant total of gres/mig; empty when the
// ledger cannot say.
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
