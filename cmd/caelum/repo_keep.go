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
		Use:     "export",
		Short:   "Print every run, one JSON object a line",
		Long:    `export prints every run of the repository, oldest first; the same repository gives the same bytes. "caelum repo import" reads it.`,
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
		Short: "Add the runs of an export, all or none",
		Long: `import reads what "caelum repo export" has printed, from a file or from standard input. Runs that are there already are completed. Runs that were forgotten stay so. A mistake in a
line is named, and nothing is added then.`,
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d runs, %d of them new\n", read, added)
			return err
		},
	}
}

func newRepoForget(o *repoOptions) *cobra.Command {
	var key, user, before string
	cmd := &cobra.Command{
		Use:   "forget (--key KEY [--user USER] | --user USER | --before TIME)",
		Short: "Forget the runs of a key, of a user, or before a time",
		Long: `forget drops runs: of a key and of a user those that began before now. They stay forgotten when they are read from slurmdbd again; what runs later is learned. Each repository
forgets for itself, and slurmdbd keeps what it has.`,
		Example: `  caelum repo forget --key 16e6c08ad68451a8   # the script is another one now
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
				return usageError{fmt.Errorf("name --key, --user or both, or --before")}
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
						fmt.Errorf("--before %s has yet to come: runs until then would not be learned from", before),
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d runs forgotten\n", n)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "the runs of this key, of every user or of --user")
	f.StringVar(&user, "user", "", "the runs of this user, by name or id")
	f.StringVar(&before, "before", "", "the runs that began before 2026-11-21, or 2026-11-21T04:57:35")
	return cmd
}

// usersNamed lists the ids of the users who have had a name, and the id that the name is.
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

// forgetKey forgets the runs of a key: of the user who is named, else of every user who has some.
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

// forgetUser forgets the runs of whoever had the name, or of an id.
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

// readTime reads a date or a time, local.
func readTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("%q is no time: write 2026-11-21 or 2026-11-21T04:57:35", text)}
}

// dbdTimeout is for one question to slurmdbd: a day's jobs.
const dbdTimeout = 5 * time.Minute

func newRepoSync(g *globals, o *repoOptions) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Read what slurmdbd has of earlier runs into the repository",
		Long: `sync reads the summaries of runs from the accounting records of slurmdbd, a day at a time: the last 400 days into a new repository, later what has come since, an hour further back,
and once a day 30 days back, since a summary may be written so late. It may be run at any time, as often as wanted, and goes on where one that failed has stopped.
Run it as root or as a Slurm operator: others are shown their own jobs only where slurm.conf and slurmdbd.conf say so.`,
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
	cmd.Flags().StringVar(&since, "since", "", "read everything since 2026-11-21, or 2026-11-21T04:57:35, again")
	return cmd
}

func printSynced(w io.Writer, done learn.Synced) error {
	_, err := fmt.Fprintf(
		w,
		"%d jobs since %s, %d runs with a summary, %d of them new\n",
		done.Jobs,
		done.From.Format(time.DateTime),
		done.Runs,
		done.New,
	)
	return err
}

func newRepoDecisions(g *globals, o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "decisions",
		Short: "Write what earlier runs have taught into the decision table",
		Long: `decisions writes a line for each key, each user's work, and, where the site shares, each work, of which the repository predicts something else than the job would get without it. What
stands above the line "# What stands below ..." is the admin's and stays. The table gets the next generation, by rename; where nothing has changed it is left alone. Of more than job_submit.lua
reads (20,000 lines, 1 MiB) the oldest lines of the users with the most are left out.`,
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
				cmd.OutOrStdout(),
				"%s: generation %d, %d learned lines, %s\n",
				done.Table,
				done.Generation,
				done.Learned,
				verb,
			)
			if err == nil && done.LeftOut > 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d lines had no room\n", done.LeftOut)
			}
			return err
		},
	}
}
