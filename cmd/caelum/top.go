package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"caelum/internal/cli/overview"
)

// These constants limit the load that users of caelum top put on slurmctld (contrib/lab/results.md, "Cost of caelum
// top").
const (
	// topInterval is the default value of --interval, and topFastest is the minimum value.
	topInterval = 15 * time.Second
	topFastest  = 10 * time.Second
	// topSlowdown is the minimum ratio of the pause after a refresh to the duration of the refresh. Each failed refresh
	// doubles the pause. Neither rule makes the pause longer than topLongest.
	topSlowdown = 20
	topLongest  = time.Minute
	// topUnattended is the time for which top keeps refreshing while no key is pressed. Once it has stopped, it resumes
	// when a key is pressed.
	topUnattended = time.Hour
)

func newTop(g *globals) *cobra.Command {
	interval := topInterval
	cmd := &cobra.Command{
		Use:   "top [NODE]",
		Short: "Show the GPUs of all nodes, and refresh the output every few seconds",
		Long: `top shows the output of caelum status --all, or of caelum status NODE, in colour, and refreshes it.
If the NO_COLOR environment variable is set, top uses no colours. If standard output is not a
terminal, or with --json, top prints the output once.

Each refresh runs scontrol once and, with NODE, also squeue. While slurmctld answers slowly, top
refreshes less often. If slurmctld does not answer, top keeps the last output, shows its age and the
error, and retries after twice the previous pause, up to a minute. If no key is pressed for an hour,
it stops refreshing until one is pressed.

KEYS
  up, down, page up, page down, home   scroll
  q, escape, control-C                 quit`,
		Example: `  caelum top
  caelum top n1 --interval 30s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval < topFastest {
				return usageError{fmt.Errorf("--interval must be at least %v, because every refresh puts load on "+
					"slurmctld",
					topFastest)}
			}
			name := strings.Join(args, "")
			out, ok := cmd.OutOrStdout().(*os.File)
			if g.json || !ok || !isTerminal(out) {
				return printNodes(cmd.Context(), cmd.OutOrStdout(), g, name)
			}
			return runTop(cmd.Context(), name, interval)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", topInterval,
		fmt.Sprintf("pause between refreshes, at least %v", topFastest))
	return cmd
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// runTop shows the node with the given name, or all nodes if the name is empty, until the user quits or a signal
// arrives.
func runTop(ctx context.Context, name string, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer stop()
	read := readerOf(name)
	lines, err := read(ctx)
	if err != nil { // top does not start if the first refresh fails
		return err
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("couldn't use the terminal: %w; set TERM to its type, or run `caelum status --all`", err)
	}
	defer screen.Fini()
	t := &top{screen: screen, read: read, interval: interval, colours: os.Getenv("NO_COLOR") == ""}
	t.lines, t.at, t.key = lines, time.Now(), time.Now()
	if name == "" {
		t.head = allNodesHead
	}
	t.run(ctx)
	return nil
}

// readerOf returns a function that reads the lines to show.
func readerOf(name string) func(context.Context) ([]spans, error) {
	ctl := newController()
	return func(ctx context.Context) ([]spans, error) {
		if name != "" {
			n, err := readNode(ctx, ctl, name)
			return oneNode(n, time.Now()), err
		}
		records, err := ctl.NodeRecords(ctx)
		return allNodes(overview.Nodes(records)), nodesError(err)
	}
}

// pauseOf returns the pause before the next refresh. The argument took is the duration of the last refresh, and
// failures is the number of refreshes that have failed since the last success.
func pauseOf(interval, took time.Duration, failures int) time.Duration {
	pause := max(interval, min(topSlowdown*took, topLongest))
	for range failures {
		if pause < topLongest {
			pause = min(2*pause, topLongest)
		}
	}
	return pause
}
