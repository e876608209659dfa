// Command caelumd is the agent of a GPU node. It manages the MIG instances of the node's GPUs and leases slices to
// Slurm jobs. "caelumd watch" is the watcher on slurmctld's host, and "caelumd close" withdraws a node's offers. This
// package only reads the configuration and then creates and connects the components. The agent itself is in package
// agent.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/controller/notify"
	"caelum/internal/controller/repo"
	"caelum/internal/controller/watch"
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
			fmt.Fprintln(os.Stderr, "caelumd:", printable(err))
		}
		os.Exit(failed.status)
	}
}

// printable returns the text of an error without characters that could control a terminal. Errors can contain the
// output of Slurm's commands, which includes text chosen by users.
func printable(err error) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return r
		}
		return '?'
	}, err.Error())
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
		Use:   "watch",
		Short: "Notify the agents of changes in the queue; runs on slurmctld's host",
		Long: `watch reads the nodes and the queue after each submission that job_submit.lua processes and after
each publication by an agent. It then notifies the nodes that have to change their offers or release
a job. A notification is a datagram that makes an agent read the queue immediately; it carries no
other instruction. Without watch, agents read the queue every poll_interval. Every minute, watch also
learns from the runs that have ended: it updates the repository and the decision table.

Run watch as slurmctld's user. For notifications, caelum.yaml must contain the same wake_port on this
host as on the nodes, and slurmctld's user must own the wake key file.

EXIT STATUS
  0  a signal stopped watch (SIGTERM, SIGINT)
  1  watch could not start or continue; the reason is on standard error`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return watchQueue(path) },
	}, &cobra.Command{
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
		RunE: func(*cobra.Command, []string) error { return prepare(path) },
	}, &cobra.Command{
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
	}, newVersion(), newSchema(&path), newCheck(&path), newShadow(&path), newQualify(&path),
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
	log := logger(cfg)
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
	go saveMemory(ctx)
	return a.Run(ctx)
}

// saveMemory uses CPU time to reduce memory, which belongs to the jobs and to slurmctld: the heap holds at most half as
// much garbage as data, and memory that a long queue needed returns to the system within a minute.
func saveMemory(ctx context.Context) {
	debug.SetGCPercent(50)
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-every.C:
			debug.FreeOSMemory()
		}
	}
}

// nodeClient returns the agent's Slurm client. caelum-show is installed in the directory of caelumd.
func nodeClient() *slurm.Client {
	var opt slurm.Options
	if own, err := os.Executable(); err == nil {
		opt.Show = filepath.Join(filepath.Dir(own), "caelum-show")
	}
	return slurm.New(opt)
}

func logger(cfg config.Config) *logrus.Logger {
	log := logrus.New()
	level, _ := logrus.ParseLevel(cfg.LogLevel) // config.Load has checked the level
	log.SetLevel(level)
	// If colours were enabled, logrus would not quote names chosen by users.
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true})
	if cfg.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	}
	return log
}

func watchQueue(path string) error {
	cfg, err := config.LoadOwn(path)
	if err != nil {
		return err
	}
	settings, err := cfg.Planning()
	if err != nil {
		return err
	}
	log := logger(cfg).WithField("watcher", cfg.Node)
	var key notify.Key
	if cfg.WakePort > 0 {
		if key, err = notify.ReadKey(cfg.WakeKey, uint32(os.Geteuid())); err != nil {
			log.WithError(err).Error("the wake port was not opened; agents receive no notifications of submissions")
		}
	}
	ctl := slurm.New(slurm.Options{})
	own := watch.Config{
		TriggerFile: cfg.PokeFile,
		WakePort:    cfg.WakePort,
		Address:     cfg.WakeAddress,
		Name:        cfg.Node,
		Key:         key,
		Interval:    cfg.PollInterval,
		Settings:    settings,
		Planner:     cfg.Planner,
		Preemptor:   ctl,
		Preempt:     cfg.Preempt,
		Moves:       watch.Moves{PerDay: cfg.MovesPerDay, Partitions: cfg.MovePartitions, Command: cfg.MoveCommand},
	}
	w := watch.New(own, ctl, log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go saveMemory(ctx)
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
	log := logger(cfg).WithField("learn", cfg.Table)
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
