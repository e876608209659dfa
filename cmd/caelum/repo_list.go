package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// listed is the JSON form of a line in the output of caelum repo list.
type listed struct {
	Key         string        `json:"key"`
	Fingerprint string        `json:"work,omitempty"` // script fingerprint
	UID         uint32        `json:"uid"`
	User        string        `json:"user"`
	Account     string        `json:"account,omitempty"`
	Name        string        `json:"name"`
	Runs        int           `json:"runs"`
	Last        int64         `json:"last"`
	PeakMiB     float64       `json:"peak_mib"`
	Level       predict.Level `json:"level,omitempty"`
	NeededMiB   float64       `json:"needed_mib,omitempty"`
	Profile     string        `json:"profile,omitempty"`
	Seconds     float64       `json:"seconds,omitempty"`
}

func newRepoList(g *globals, o *repoOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys: user, number of runs, highest peak, predicted profile",
		Long: `list prints one line for each combination of user and key, most recent run first. PEAK is the
highest memory usage of any slice in any run. PROFILE is the profile that the next run would
request, on the GPU model given by --board or, without --board, on the model of the decision table's
default profile. TIME is the expected run time.`,
		Example: `  caelum repo list | head
  caelum repo list --json | jq '.[] | select(.user == "user1")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRepoList(cmd.Context(), cmd.OutOrStdout(), g, o)
		},
	}
	cmd.Flags().StringVar(&o.model, "board", "", "the GPU model; default: the GPU models in the decision table")
	return cmd
}

func runRepoList(ctx context.Context, w io.Writer, g *globals, o *repoOptions) error {
	r, cfg, err := o.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	t, err := o.decisions(cfg)
	if err != nil {
		return err
	}
	scripts, err := r.Scripts()
	if err != nil {
		return err
	}
	all, of := make([]listed, 0, len(scripts)), map[uint32][]repo.Script{}
	for _, s := range scripts {
		of[s.UID] = append(of[s.UID], s)
	}
	for _, s := range scripts {
		given, err := t.PredictAmong(r, s.JobKeys, of[s.UID], cfg.Site())
		if err != nil {
			return err
		}
		all = append(all, newListed(s, given))
	}
	if g.json {
		return printJSON(w, all)
	}
	return printList(w, all)
}

// newListed returns the line for a key and its prediction.
func newListed(s repo.Script, given learn.Prediction) listed {
	l := listed{
		Key:         s.Key,
		Fingerprint: s.Fingerprint,
		UID:         s.UID,
		User:        s.User,
		Account:     s.Account,
		Name:        s.Name,
		Runs:        s.Runs,
		Last:        s.Last,
		PeakMiB:     s.PeakMiB,
	}
	if given.Need.Level != predict.Unknown {
		l.Level, l.NeededMiB = given.Need.Level, math.Ceil(given.Need.PeakMiB)
		l.Profile, l.Seconds = given.Profile, math.Ceil(given.Seconds)
	}
	l.Profile = cmp.Or(given.Own, l.Profile)
	return l
}

func printList(w io.Writer, all []listed) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tUSER\tNAME\tRUNS\tLAST\tPEAK\tPROFILE\tTIME")
	for _, l := range all {
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			l.Key,
			orDash(printable(l.User)),
			orDash(printable(shortened(l.Name))),
			l.Runs,
			time.Unix(l.Last, 0).Format(time.DateTime),
			mebibytes(l.PeakMiB),
			orDash(l.Profile),
			runTime(l.Seconds),
		)
	}
	return table.Flush()
}

// shortened truncates a job name to 24 characters to keep the lines of the table short.
func shortened(name string) string {
	if r := []rune(name); len(r) > 24 {
		return string(r[:23]) + "+"
	}
	return name
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func mebibytes(mib float64) string {
	if mib == 0 {
		return "-"
	}
	return strconv.FormatFloat(mib, 'f', 0, 64) + " MiB"
}

func runTime(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func newRepoShow(g *globals, o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "show KEY",
		Short: "Show the runs of a key, oldest first",
		Long: `show prints the slice and the usage of a key's newest 64 runs, in a separate table for each user.
The prediction for a job is based on these runs, except for other users' runs and runs without a
script.`,
		Example: `  caelum repo show 16e6c08ad68451a8`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRepoShow(cmd.Context(), cmd.OutOrStdout(), g, o, args[0])
		},
	}
}

func runRepoShow(ctx context.Context, w io.Writer, g *globals, o *repoOptions, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	r, _, err := o.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	owners, err := r.Owners(key)
	if err != nil {
		return err
	}
	if len(owners) == 0 {
		return fmt.Errorf("%w of the key %s", errNoRun, key)
	}
	var all []predict.Run
	for _, uid := range owners {
		runs, err := r.RunsOfKey(uid, key)
		if err != nil {
			return err
		}
		if g.json {
			all = append(all, runs...)
			continue
		}
		if len(owners) > 1 {
			fmt.Fprintf(w, "user %s (%d)\n", orDash(printable(runs[len(runs)-1].User)), uid)
		}
		if err := printRuns(w, runs); err != nil {
			return err
		}
	}
	if g.json {
		return printJSON(w, lines(all))
	}
	return nil
}

func lines(runs []predict.Run) []repo.Line {
	list := make([]repo.Line, len(runs))
	for i, n := range runs {
		list[i] = repo.Line(n)
	}
	return list
}

func printRuns(w io.Writer, runs []predict.Run) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tSTART\tNODE\tPROFILE\tRAN\tPEAK\tP95\tMEDIAN\tUTIL\tSTATE")
	for _, n := range runs {
		job, profile, util, state := strconv.FormatUint(uint64(n.Job), 10), n.Profile, "-", orDash(n.State)
		if n.Restart > 0 {
			job += fmt.Sprintf(" (restart %d)", n.Restart)
		}
		if n.Slices > 1 {
			profile += fmt.Sprintf(" x%d", n.Slices)
		}
		if n.Util >= 0 && n.Samples > 0 {
			util = fmt.Sprintf("%.0f%%", 100*n.Util)
		}
		if n.Exit != 0 {
			state += fmt.Sprintf(" (%d)", n.Exit)
		}
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			job,
			time.Unix(n.Start, 0).Format(time.DateTime),
			printable(n.Node),
			printable(profile),
			runTime(n.Seconds),
			mebibytes(n.PeakMiB),
			mebibytes(n.HighMiB),
			mebibytes(n.MedianMiB),
			util,
			printable(state),
		)
	}
	return table.Flush()
}
