package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/slurm"
)

func newRepoExport(o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Print all runs, one JSON object per line",
		Long: `export prints all runs in the repository, oldest first, in the format that "caelum repo import"
reads. Two repositories with the same runs have identical exports.`,
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
		Use:   "import [FILE...]",
		Short: "Add the runs from an export or from caelumd observe to the repository",
		Long: `import reads files, or standard input, in the format of "caelum repo export" or "caelumd observe", and
adds the runs to the repository. For a run that is already there, it only fills in missing values.
Runs that "caelum repo forget" deleted are skipped. If a line is invalid, or if other users can
change a file, import reports it, adds no runs of this file and stops.`,
		Example: `  caelum repo import runs.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := o.open(false)
			if err != nil {
				return err
			}
			defer r.Close()
			var read, added int
			if len(args) == 0 {
				if read, added, err = r.Import(cmd.InOrStdin()); err != nil {
					return fmt.Errorf("standard input: %w", err)
				}
			}
			for _, name := range args {
				n, new, err := importFile(r, name)
				if err != nil {
					return err
				}
				read, added = read+n, added+new
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %d of them new\n", plural(read, "run"), added)
			return err
		},
	}
}

func importFile(r *repo.Repo, name string) (read, added int, err error) {
	f, err := repo.OpenRuns(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if read, added, err = r.Import(f); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return read, added, err
}

// readTime parses a date or a time in the local time zone.
func readTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{
		fmt.Errorf("%q is not a time; specify a time such as 2026-11-21 or 2026-11-21T04:57:35", text),
	}
}

// dbdTimeout is the timeout for a query to slurmdbd. It is long because a query covers the jobs of at least one day.
const dbdTimeout = 5 * time.Minute

func newRepoSync(g *globals, o *repoOptions) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Read the summaries of earlier runs from slurmdbd into the repository",
		Long: `sync reads the summaries of runs from the job records in slurmdbd. Each query covers at least one
day. For a new repository, it reads the last 400 days; each later sync begins one hour before the
end of the previous one. Once a day, sync rereads the last 30 days, because an agent that cannot
write a summary retries for up to 30 days. If a sync fails, the next one continues where it stopped.

Run sync as root or as a Slurm operator, because slurm.conf and slurmdbd.conf can hide other users'
jobs from ordinary users.`,
		Example: `  caelum repo sync
  caelum repo sync --since 2026-01-01`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRepoSync(cmd.Context(), cmd.OutOrStdout(), g, o, since)
		},
	}
	cmd.Flags().StringVar(&since, "since", "",
		"re-read all records since this time, for example 2026-11-21 or 2026-11-21T04:57:35")
	return cmd
}

func runRepoSync(ctx context.Context, w io.Writer, g *globals, o *repoOptions, since string) error {
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
	done, err := learn.Sync(ctx, slurm.New(slurm.Options{Timeout: dbdTimeout}), r, field, from, time.Now())
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(w, done)
	}
	_, err = fmt.Fprintf(w, "%s since %s, %s with a summary, %d of them new\n",
		plural(done.Jobs, "job"), done.From.Format(time.DateTime), plural(done.Runs, "run"), done.New)
	return err
}

func newRepoDecisions(g *globals, o *repoOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "decisions",
		Short: "Write the learned lines to the decision table",
		Long: `decisions writes learned lines to the decision table. A key, or a user's script fingerprint, gets a
line only if a job would get a different profile or expected run time without it. With "share: true"
in the configuration file, decisions also writes lines for script fingerprints that apply to all
users. The administrator's lines, which are above the line "# The lines below are learned ...", are
not changed.

If the learned lines have changed, decisions increments the table's generation and replaces the
table atomically; otherwise, it leaves the table alone. job_submit.lua accepts at most 20,000 lines
and 1 MiB. If the table would exceed these limits, the oldest lines of the users with the most lines
are left out.`,
		Example: `  caelum repo sync && caelum repo decisions`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runRepoDecisions(cmd.OutOrStdout(), g, o) },
	}
}

func runRepoDecisions(w io.Writer, g *globals, o *repoOptions) error {
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
		return printJSON(w, done)
	}
	verb := "unchanged"
	if done.Changed {
		verb = "written"
	}
	_, err = fmt.Fprintf(w, "%s: generation %d, %s, %s\n",
		done.Table, done.Generation, plural(done.Learned, "learned line"), verb)
	if err == nil && done.LeftOut > 0 {
		_, err = fmt.Fprintf(w, "%s omitted, because the table is full\n", plural(done.LeftOut, "learned line"))
	}
	return err
}
