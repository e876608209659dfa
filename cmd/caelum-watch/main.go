// Command caelum-watch is the watcher on slurmctld's host. This package only reads the configuration and then creates
// and connects the components. The watcher itself is in package watch, and learning in package learn.
//
// Files:
//
//	main.go     the commands
//	watch.go    the watcher, and the loop that learns
//	prepare.go  moves the decision table before the watcher starts
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/daemon"
	"caelum/internal/version"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "caelum-watch:", daemon.Printable(err))
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "caelum-watch",
		Short: "Caelum's watcher: plans, notifies the agents of changes in the queue, and learns from ended jobs",
		Long: `The watcher runs on slurmctld's host. It reads the nodes and the queue after each submission that
job_submit.lua processes and after each publication by an agent. Unless planner is false, it then
writes each node's part of the plan into the node's Comment and, if Slurm's settings allow it, stops
jobs for jobs that need another profile. It notifies the nodes that have to change their offers or
release a job. A notification is a datagram that makes an agent read the queue immediately. Without
the watcher, agents plan for themselves and read the queue every poll_interval. Unless learn is
false, the watcher also learns from the runs that have ended: every minute, it updates the
repository and the decision table.

Run caelum-watch as slurmctld's user.

EXIT STATUS
  0  a signal stopped caelum-watch (SIGTERM, SIGINT)
  1  caelum-watch could not start or continue; the reason is on standard error`,
		Args:          cobra.NoArgs,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return watchQueue(path) },
	}
	cmd.PersistentFlags().StringVar(&path, "config", config.DefaultPath, "configuration file")
	cmd.AddCommand(newPrepare(&path), daemon.ConfigCommand(&path, config.Agent), daemon.VersionCommand("caelum-watch"))
	return cmd
}
