package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/learn"
	"caelum/internal/repo"
	"caelum/internal/slurm"
)

func newRepoExport(o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Print all runs, one JSON object on each line",
		Long: `export prints all runs of the repository, oldest first. The output depends only on the runs, so
that two exports can be compared. "caelum repo import" reads the output.`,
		Example: `  caelum repo export > runs.jsonl`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, _, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			defer r.Close()
			return r.Export(cmd.OutOrStdout())
		},
	}
}

func newRepoImport(o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "import [FILE]",
		Short: "Add the runs of an export: all of them, or none",
		Long: `import reads the output of "caelum repo export" from a file or from standard input. It adds
missing values to runs that the repository already has, and skips forgotten runs. If a line is
invalid, import reports it and adds nothing.`,
		Example: `  caelum repo import runs.jsonl`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, name := cmd.InOrStdin(), "standard input"
			if len(args) > 0 {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				from, name = f, args[0]
			}
			r, _, err := o.open(false)
			if err != nil {
				return err
			}
			defer r.Close()
			read, added, err := r.Import(from)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %d of them new\n", plural(read, "run"), added)
			return err
		},
	}
}

func newRepoForget(o *repoOptions) *cobra.Command {
	var key, user, before string
	cmd := &cobra.Command{
		Use:   "forget (--key KEY [--user USER] | --user USER | --before TIME)",
		Short: "Forget the runs of a key, of a user, or before a time",
		Long: `forget deletes the runs of a key or of a user that began before now, or all runs that began
before a time. "caelum repo sync" and "caelum repo import" do not add these runs again, but they
add later runs. forget changes only this repository: other repositories and slurmdbd keep the
runs.`,
		Example: `  caelum repo forget --key 16e6c08ad68451a8   # the script has changed
  caelum repo forget --before 2026-01-01`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := 0
			for _, s := range []string{cmp.Or(key, user), before} {
				if s != "" {
					given++
				}
			}
			if given != 1 {
				return usageError{fmt.Errorf("give --key, --user or both, or --before")}
			}
			var at time.Time
			if key != "" {
				if err := checkKey(key); err != nil {
					return err
				}
			}
			if before != "" {
				var err error
				if at, err = readTime(before); err != nil {
					return err
				}
				if at.After(time.Now()) {
					return usageError{
						fmt.Errorf("--before %s is in the future: runs until then would be ignored", before),
					}
				}
			}
			r, _, err := o.open(true)
			if err != nil {
				return err
			}
			defer r.Close()
			n, now := 0, time.Now()
			switch {
			case key != "":
				n, err = forgetKey(r, key, user, now)
			case user != "":
				n, err = forgetUser(r, user, now)
			default:
				n, err = r.ForgetBefore(at)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s forgotten\n", plural(n, "run"))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "forget the runs of this key, of all users or of --user")
	f.StringVar(&user, "user", "", "forget the runs of this user, given by name or id")
	f.StringVar(&before, "before", "",
		"forget the runs that began before this time: 2026-11-21, or 2026-11-21T04:57:35")
	return cmd
}

// usersNamed returns the ids of the users that have runs under this name. If name is a number, it returns this id, too.
func usersNamed(r *repo.Repo, name string) ([]uint32, error) {
	uids, err := r.Users(name)
	if id, bad := strconv.ParseUint(name, 10, 32); bad == nil {
		uids = append(uids, uint32(id))
	}
	if err == nil && len(uids) == 0 {
		err = fmt.Errorf("%w of a user %q", errNoRun, name)
	}
	return uids, err
}

// forgetKey forgets the runs of a key that began before now, of the given user or, if user is empty, of all users. It
// returns their number.
func forgetKey(r *repo.Repo, key, user string, now time.Time) (all int, err error) {
	if user == "" {
		return r.ForgetKey(key, now)
	}
	uids, err := usersNamed(r, user)
	if err != nil {
		return 0, err
	}
	for _, uid := range uids {
		n, err := r.ForgetKeyOf(uid, key, now)
		if err != nil {
			return all, err
		}
		all += n
	}
	return all, nil
}

// forgetUser forgets the runs that began before now of a user given by name or id. It returns their number.
func forgetUser(r *repo.Repo, name string, now time.Time) (all int, err error) {
	uids, err := usersNamed(r, name)
	if err != nil {
		return 0, err
	}
	for _, uid := range uids {
		n, err := r.ForgetUser(uid, now)
		if err != nil {
			return all, err
		}
		all += n
	}
	return all, nil
}

// readTime parses a date or a time in the local time zone.
func readTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("%q is not a time: write 2026-11-21 or 2026-11-21T04:57:35", text)}
}

// dbdTimeout limits one query to slurmdbd, which returns the jobs of at least a day.
const dbdTimeout = 5 * time.Minute

func newRepoSync(g *globals, o *repoOptions) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Read the summaries of earlier runs from slurmdbd into the repository",
		Long: `sync reads the summaries of runs from the job records of slurmdbd, at least a day at a time. It
reads the last 400 days into a new repository. Later it reads the time since the last sync and
the hour before, and once a day the last 30 days, because a summary can be written that late.
sync can be run at any time. After a failure, the next sync continues where the failed one
stopped.

Run sync as root or as a Slurm operator: slurm.conf and slurmdbd.conf can hide other users' jobs
from ordinary users.`,
		Example: `  caelum repo sync
  caelum repo sync --since 2026-01-01`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			if since != "" {
				var err error
				if from, err = readTime(since); err != nil {
					return err
				}
			}
			r, cfg, err := o.open(false)
			if err != nil {
				return err
			}
			defer r.Close()
			field, err := cfg.Field()
			if err != nil {
				return err
			}
			done, err := learn.Sync(
				cmd.Context(),
				slurm.New(slurm.Options{Timeout: dbdTimeout}),
				r,
				field,
				from,
				time.Now(),
			)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), done)
			}
			return printSynced(cmd.OutOrStdout(), done)
		},
	}
	cmd.Flags().StringVar(&since, "since", "",
		"read everything since this time again: 2026-11-21, or 2026-11-21T04:57:35")
	return cmd
}

func printSynced(w io.Writer, done learn.Synced) error {
	_, err := fmt.Fprintf(
		w,
		"%s since %s, %s with a summary, %d of them new\n",
		plural(done.Jobs, "job"),
		done.From.Format(time.DateTime),
		plural(done.Runs, "run"),
		done.New,
	)
	return err
}

func newRepoDecisions(g *globals, o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "decisions",
		Short: "Write the learned lines to the decision table",
		Long: `decisions writes learned lines into the decision table. It writes a line for each key and for
each script fingerprint of a user if the prediction for it differs from what the job would get
without this line. With share: true it also writes lines for script fingerprints of all users.
The lines above "# What stands below ..." belong to the administrator and remain.

A changed table gets the next generation and replaces the old table by a rename. An unchanged
table is not written. job_submit.lua reads at most 20,000 lines and 1 MiB. If there are more
learned lines, decisions omits the oldest lines of the users with the most lines.`,
		Example: `  caelum repo sync && caelum repo decisions`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, cfg, err := o.open(true)
			if err != nil {
				return err
			}
			defer r.Close()
			done, err := learn.Write(o.tablePath(cfg), r, cfg.Site())
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), done)
			}
			verb := "unchanged"
			if done.Changed {
				verb = "written"
			}
			_, err = fmt.Fprintf(
				cmd.OutOrStdout(), "%s: generation %d, %s, %s\n", done.Table, done.Generation,
				plural(done.Learned, "learned line"), verb,
			)
			if err == nil && done.LeftOut > 0 {
				_, err = fmt.Fprintf(
					cmd.OutOrStdout(), "%s omitted: the table is full\n", plural(done.LeftOut, "learned line"),
				)
			}
			return err
		},
	}
}
