package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/agent"
	"caelum/internal/learn"
	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
	"caelum/internal/trust"
)

// repoOptions are the flags that name the configuration, the repository, the decision table and the GPU model.
type repoOptions struct {
	config, path, table, board string
}

func newRepo(g *globals) *cobra.Command {
	var o repoOptions
	cmd := &cobra.Command{
		Use:   "repo",
		Short: "Show and maintain the repository of earlier runs",
		Long: `repo shows and maintains the repository of earlier runs: what each run was given and what it
used. The agent of a node records the runs on that node. "caelum repo sync" reads the runs of
the whole cluster from slurmdbd into the repository of the host on which it runs.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command %q; see caelum repo --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.config, "config", agent.DefaultConfig,
		"caelumd's configuration, for the keys repo, table, accounting_field, margin, share and max_slowdown")
	f.StringVar(&o.path, "repo", "", "the repository; default: the configuration's repo")
	f.StringVar(&o.table, "table", "", "the decision table; default: the configuration's table")
	cmd.AddCommand(
		newRepoList(g, &o),
		newRepoShow(g, &o),
		newRepoExport(&o),
		newRepoImport(&o),
		newRepoForget(&o),
		newRepoSync(g, &o),
		newRepoDecisions(g, &o),
	)
	return cmd
}

// open reads the configuration and opens the repository. It sets a file that is not a repository aside if caelum.yaml
// names the file, and leaves it unchanged if --repo does. Without mustExist it creates a repository that does not
// exist.
func (o repoOptions) open(mustExist bool) (*repo.Repo, agent.Config, error) {
	cfg, err := agent.LoadConfig(o.config)
	if err != nil {
		return nil, cfg, err
	}
	open, path := openOwn, cfg.Repo
	if o.path != "" {
		open, path = repo.OpenAsItIs, o.path
	}
	if err := trust.Directory(path); err != nil {
		return nil, cfg, err // checked because opening a repository writes
	}
	if _, err := os.Stat(path); mustExist && errors.Is(err, fs.ErrNotExist) {
		return nil, cfg, fmt.Errorf("there is no repository %s: `caelum repo sync` creates one", path)
	}
	r, err := open(path)
	if err != nil {
		return nil, cfg, err
	}
	return r, cfg, nil
}

// read opens the repository for a command that does not change it. Ordinary users may not read the repository, and
// login nodes have none: for them, read returns their own runs from slurmdbd.
func (o repoOptions) read(ctx context.Context) (*repo.Repo, agent.Config, error) {
	cfg, err := agent.LoadConfig(o.config)
	if err != nil {
		return nil, cfg, err
	}
	if o.ownOnly(cfg) {
		r, err := ownRuns(ctx, cfg)
		return r, cfg, err
	}
	return o.open(true)
}

// ownOnly reports whether the caller cannot use the repository of the configuration and gets only the caller's own
// runs.
func (o repoOptions) ownOnly(cfg agent.Config) bool {
	return o.path == "" && os.Getuid() != 0 && !mayUse(cfg.Repo)
}

// mayUse reports whether the caller may read and write a file, or create it if it does not exist.
func mayUse(path string) bool {
	const readAndWrite = 6 // access(2)
	if err := syscall.Access(path, readAndWrite); !errors.Is(err, os.ErrNotExist) {
		return err == nil
	}
	return syscall.Access(filepath.Dir(path), readAndWrite) == nil
}

// ownRuns returns a temporary repository with the caller's own runs from slurmdbd. It disappears when this process
// ends.
func ownRuns(ctx context.Context, cfg agent.Config) (*repo.Repo, error) {
	field, err := cfg.Field()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "caelum")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the open repository remains usable
	r, err := repo.OpenAsItIs(filepath.Join(dir, "own.db"))
	if err != nil {
		return nil, err
	}
	own := slurm.New(slurm.Options{Timeout: dbdTimeout}).OfUser(uint32(os.Getuid()))
	if _, err := learn.Sync(ctx, own, r, field, time.Time{}, time.Now()); err != nil {
		r.Close()
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "caelum: you may not read the repository of this host; using your own runs from slurmdbd")
	return r, nil
}

// openOwn opens the repository of the configuration. Warnings go to standard error.
func openOwn(path string) (*repo.Repo, error) {
	return repo.Open(path, func(text string) { fmt.Fprintln(os.Stderr, "caelum: "+printable(text)) })
}

// decisions returns the GPU models and the default profile for predictions: the model of --board, else the decision
// table. Without both, the result has no GPU model, and only memory and run time can be predicted.
func (o repoOptions) decisions(cfg agent.Config) (learn.Table, error) {
	if o.board != "" {
		b, err := modelNamed(o.board)
		if err != nil {
			return learn.Table{}, err
		}
		return learn.Table{Models: []*mig.Model{selected(b, nil)}}, nil
	}
	t, err := learn.ReadTable(o.tablePath(cfg))
	if errors.Is(err, fs.ErrNotExist) && o.table == "" {
		return learn.Table{}, nil
	}
	return t, err
}

func (o repoOptions) tablePath(cfg agent.Config) string {
	if o.table != "" {
		return o.table
	}
	return cfg.Table
}

// listed is a line of caelum repo list, in its JSON form.
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
		Long: `list prints one line for each key of a user. The key with the most recent run comes first. PEAK
is the highest memory usage of one slice in any run. PROFILE is the profile that the next run
would be given, on the GPU model of the decision table's default profile. TIME is the expected
run time.`,
		Example: `  caelum repo list | head
  caelum repo list --json | jq '.[] | select(.user == "user1")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, cfg, err := o.read(cmd.Context())
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
			all := make([]listed, 0, len(scripts))
			for _, s := range scripts {
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
				need, _, ok, err := r.Predict(s.JobKeys, cfg.Site())
				if err != nil {
					return err
				}
				if ok || need.PeakMiB > 0 {
					l.Level, l.NeededMiB = need.Level, math.Ceil(need.PeakMiB)
					choice := learn.Choose(need, ok, t.Models, t.Default)
					l.Profile, l.Seconds = choice.Profile, math.Ceil(choice.Seconds)
				}
				l.Profile = cmp.Or(t.Own(s.JobKeys, l.Level), l.Profile)
				all = append(all, l)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printList(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().StringVar(&o.board, "board", "", "predict for this GPU model, instead of those in the decision table")
	return cmd
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

// shortened limits a job name to 24 characters, so that the table stays narrow.
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
		Long: `show prints what the newest 64 runs of a key were given and what they used. Predictions are
based on these runs, except for those without a script. The runs of a key count for their own
user only. If several users have runs of the key, show prints one table for each user.`,
		Example: `  caelum repo show 16e6c08ad68451a8`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKey(args[0]); err != nil {
				return err
			}
			r, _, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			defer r.Close()
			owners, err := r.Owners(args[0])
			if err != nil {
				return err
			}
			var all []predict.Run
			for _, uid := range owners {
				runs, err := r.RunsOfKey(uid, args[0])
				if err != nil {
					return err
				}
				all = append(all, runs...)
				if len(owners) > 1 && !g.json {
					fmt.Fprintf(cmd.OutOrStdout(), "user %s (%d)\n", orDash(printable(runs[len(runs)-1].User)), uid)
				}
				if !g.json {
					if err := printRuns(cmd.OutOrStdout(), runs); err != nil {
						return err
					}
				}
			}
			switch {
			case len(all) == 0:
				return fmt.Errorf("%w of the key %s", errNoRun, args[0])
			case g.json:
				return printJSON(cmd.OutOrStdout(), lines(all))
			}
			return nil
		},
	}
}

var errNoRun = errors.New("the repository has no run")

func checkKey(key string) error {
	if key == "" || !repo.IsHash(key) {
		return usageError{
			fmt.Errorf("%q is not a key: a key is 16 hexadecimal digits, "+
				"after caelum:key= in a job's AdminComment", key),
		}
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
