package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
	"caelum/internal/version"
)

// These exit statuses have the same meaning in every command.
const (
	exitFailure = 1
	exitUsage   = 2
	exitNoAgent = 3
	exitNoSuch  = 4
)

const exitStatusHelp = `
EXIT STATUS
  0  success
  1  the command failed; the reason is on standard error
  2  usage error
  3  this node's agent does not answer
  4  the job does not exist or holds no slice on this node, or the repository has no matching run`

// callTimeout is the timeout for a call to the agent. A working agent answers much faster, because it keeps the answers
// in memory.
const callTimeout = 10 * time.Second

func main() {
	err := newRoot().Execute()
	if errors.Is(err, errPrinted) {
		os.Exit(exitFailure)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "caelum:", printable(strings.ReplaceAll(err.Error(), "\n", " ")))
		os.Exit(exitCode(err))
	}
}

// errPrinted is returned by a command that has already printed the reason for its failure. It makes the command exit
// with exitFailure.
var errPrinted = errors.New("the command has printed the reason")

// usageError is an error in the command line. It makes the command exit with exitUsage.
type usageError struct{ error }

func exitCode(err error) int {
	var answer *api.Error
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &answer) && answer.Code == http.StatusNotFound,
		errors.Is(err, slurm.ErrNoJob),
		errors.Is(err, errNoRun):
		return exitNoSuch
	case errors.Is(err, errNoAgent):
		return exitNoAgent
	}
	return exitFailure
}

// globals holds the flags common to all commands.
type globals struct {
	config, runDir string
	json           bool
}

func newRoot() *cobra.Command {
	g := &globals{}
	cmd := &cobra.Command{
		Use:   "caelum",
		Short: "MIG slices for Slurm jobs, created on demand",
		Long: `caelum shows the GPUs, slices and jobs of this node, explains why jobs wait, prints the
configuration that Slurm needs, and calculates how GPUs can be partitioned.` + exitStatusHelp,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q; see caelum --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&g.config, "config", config.DefaultPath, "the configuration file")
	cmd.PersistentFlags().StringVar(&g.runDir, "run-dir", api.DefaultRunDir, "directory of the agent's socket")
	cmd.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(
		newStatus(g),
		newTop(g),
		newJob(g),
		newExplain(g),
		newDoctor(g),
		newDecisions(g),
		newSlurmConfig(g),
		newSetup(g),
		newConvertJobs(),
		newProfiles(g),
		newSimulate(g),
		newUsage(g),
		newReport(g),
		newRepo(g),
		newPredict(g),
		newProfileJob(g),
		newAdopt(g),
		newReadmit(g),
		newVersion(g),
	)
	complete(cmd, g)
	finish(cmd)
	return cmd
}

// finish adds the exit statuses to the help text of every subcommand of cmd, at every depth, and converts errors in the
// arguments of these commands to usageErrors.
func finish(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		finish(sub)
		sub.Long += "\n" + exitStatusHelp
		if check := sub.Args; check != nil {
			sub.Args = func(c *cobra.Command, args []string) error {
				if err := check(c, args); err != nil {
					return usageError{fmt.Errorf("%w; usage: %s", err, c.UseLine())}
				}
				return nil
			}
		}
	}
}

var errNoAgent = errors.New("the agent does not answer")

// ask calls this node's agent and waits at most callTimeout for the answer. If the agent does not answer, the error
// wraps errNoAgent.
func ask[T any](g *globals, call func(context.Context, *api.Client) (T, error)) (T, error) {
	return askWithin(g, callTimeout, call)
}

// askWithin is like ask, but with the given time limit.
func askWithin[T any](g *globals, limit time.Duration, call func(context.Context, *api.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client := api.NewClient(g.runDir)
	v, err := call(ctx, client)
	var answer *api.Error
	if err != nil && !errors.As(err, &answer) {
		err = fmt.Errorf(
			"%w on %s (%s); run `systemctl status caelumd` to see whether caelumd is running on this node",
			errNoAgent, client.Socket(), api.Reason(err),
		)
	}
	return v, err
}

// printJSON writes v as indented JSON. Unlike encoding/json, it also escapes unprintable characters above 0x7e, because
// they can control a terminal.
func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, "\\u%04x", half)
		}
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}

// plural returns a number and a noun, for example "1 job" or "2 jobs".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
