package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/slurm"
)

func newPrepare(path *string) *cobra.Command {
	return &cobra.Command{
		Use:   "prepare",
		Short: "Move the decision table to the watcher's state directory",
		Long: `prepare makes the decision table writable for the watcher: it moves /etc/caelum/decisions to
/var/lib/caelum-watch, whose owner it makes the owner of the table, and leaves a link. If the table
is a link already, if there is none, or if learn is false, it changes nothing. caelum-watch.service
runs it as root before the watcher.

EXIT STATUS
  0  the watcher can write the table, or does not need to
  1  the table was not moved; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return prepare(*path) },
	}
}

// slurmctldTimeout is how long prepare waits for slurmctld, which may start at the same time.
const slurmctldTimeout = 30 * time.Second

// isSlurmUser returns an error unless the user is SlurmUser. Otherwise, slurmctld could not read the table.
func isSlurmUser(user uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), slurmctldTimeout)
	defer cancel()
	ctl := slurm.New(slurm.Options{})
	c, err := ctl.Config(ctx)
	for ; err != nil && ctx.Err() == nil; c, err = ctl.Config(ctx) {
		time.Sleep(time.Second)
	}
	if err != nil {
		return fmt.Errorf("couldn't ask slurmctld for SlurmUser: %w", err)
	}
	if uid, known := c.SlurmUser(); !known || uid != user {
		return fmt.Errorf("the watcher's user ID is %d, but SlurmUser is %s; set User= in the unit (`systemctl edit "+
			"caelum-watch`)", user, c.Values["SlurmUser"])
	}
	return nil
}

// prepare moves the decision table to the watcher's state directory, if the watcher learns. caelum-watch.service runs
// it as root before the watcher.
func prepare(path string) error {
	cfg, err := config.Load(path)
	if err != nil || !cfg.Learn {
		return err
	}
	to, err := learn.MoveTable(cfg.Table, filepath.Dir(repo.WatcherPath), isSlurmUser)
	if to != "" {
		fmt.Printf("%s is now a link to %s, so that the watcher can write learned lines into it\n", cfg.Table, to)
	}
	return err
}
