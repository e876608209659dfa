package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/controller/watch"
	"caelum/internal/daemon"
	"caelum/internal/slurm"
)

func watchQueue(path string) error {
	cfg, err := config.LoadOwn(path)
	if err != nil {
		return err
	}
	settings, err := cfg.Planning()
	if err != nil {
		return err
	}
	log := daemon.Logger(cfg).WithField("watcher", cfg.Node)
	ctl := slurm.New(slurm.Options{})
	own := watch.Config{
		TriggerFile:   cfg.TriggerFile,
		NotifyPort:    cfg.NotifyPort,
		NotifyAddress: cfg.NotifyAddress,
		Name:          cfg.Node,
		NotifyKey:     cfg.NotifyKey,
		Interval:      cfg.PollInterval,
		Settings:      settings,
		Planner:       cfg.Planner,
		Preemptor:     ctl,
		Preempt:       cfg.Preempt,
		Moves:         watch.Moves{PerDay: cfg.MovesPerDay, Partitions: cfg.MovePartitions, Command: cfg.MoveCommand},
	}
	w := watch.New(own, ctl, log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go daemon.SaveMemory(ctx)
	if loop := learning(cfg); loop != nil {
		go loop.Run(ctx) // the loop runs concurrently, because a slow slurmdbd must not delay notifications
	}
	return w.Run(ctx)
}

// dbdTimeout is the timeout for a query to slurmdbd. It is long because a query covers the jobs of at least one day.
const dbdTimeout = 5 * time.Minute

// learning returns the loop that updates the repository and the decision table, or nil if the configuration disables
// it.
func learning(cfg config.Config) *learn.Loop {
	log := daemon.Logger(cfg).WithField("learn", cfg.Table)
	field, err := cfg.Field()
	switch {
	case !cfg.Learn:
		return nil
	case err != nil:
		log.WithError(err).Warn("not learning from earlier runs")
		return nil
	}
	runs := cfg.Repo
	if runs == repo.DefaultPath && os.Geteuid() != 0 {
		runs = repo.WatcherPath
	}
	return &learn.Loop{
		Every: time.Minute,
		DBD:   slurm.New(slurm.Options{Timeout: dbdTimeout}),
		Repo:  runs,
		Table: cfg.Table,
		Field: field,
		Site:  cfg.Site(),
		Log:   log,
	}
}
