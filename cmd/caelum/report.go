package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/jobreport"
	"caelum/internal/config"
	"caelum/internal/slurm"
)

// reportOptions holds the flags of caelum report.
type reportOptions struct {
	since string
	last  int
}

// reportDays is the default number of days that the list of jobs covers.
const reportDays = 7

func newReport(g *globals) *cobra.Command {
	o := reportOptions{}
	cmd := &cobra.Command{
		Use:   "report [JOB]",
		Short: "Show what a job requested, got and used, with advice for the next submission",
		Long: `report shows what a job requested, its slices and how they were used, and the GPU-hours. Where it
advises a different profile or time limit, it prints the lines to put in the job's script. For an
array's id, report summarizes the tasks; for a het job's id, it shows each component. Without a job,
it lists your own latest GPU jobs.

report can run on any host where sacct works. The GPU usage comes from the summaries that the agents
store in slurmdbd after a job has ended (the accounting_field key in caelum.yaml). For a job that
has not ended, report also asks slurmctld whether the job has grown.
slurmdbd decides which users may see which jobs (PrivateData in slurmdbd.conf).

GPU-HOURS weights each slice by the share of the GPU that it occupied, as in caelum usage.`,
		Example: `  caelum report                # your latest jobs
  caelum report 4711
  caelum report 4711_3         # an array task
  caelum report 4711 --json | jq -r '.advice[].paste[]?'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(g.config)
			if err != nil {
				return err
			}
			dbd := slurm.New(slurm.Options{Sacct: "sacct", Timeout: dbdTimeout})
			if len(args) == 0 {
				return reportLatest(cmd.Context(), cmd.OutOrStdout(), g, o, cfg, dbd.OfUser(uint32(os.Getuid())))
			}
			ctl := slurm.New(slurm.Options{Squeue: "squeue", Timeout: optionalTimeout})
			return reportJob(cmd.Context(), cmd.OutOrStdout(), g, cfg, dbd, ctl.JobsOf, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "",
		fmt.Sprintf("without a job: list jobs since this time, for example 2026-11-21 (default: the last %d days)",
			reportDays))
	f.IntVar(&o.last, "last", 20, "without a job: list at most this number of jobs")
	return cmd
}

// jobsOf returns the jobs with an id, like slurm.Client.JobsOf.
type jobsOf func(context.Context, uint32) ([]slurm.Job, error)

// reportJob prints the report on one job, array or het job.
func reportJob(
	ctx context.Context, w io.Writer, g *globals, cfg config.Config, dbd *slurm.Client, ctl jobsOf, id string,
) error {
	number, _, err := jobRef(id)
	if err != nil {
		return err
	}
	records, err := dbd.AllocationsOf(ctx, summaryField(cfg), id)
	if errors.Is(err, slurm.ErrNoJob) {
		return unseenJob{id}
	}
	if err != nil {
		return err
	}
	addTags(ctx, ctl, number, records)
	names, err := dbd.NamesOf(ctx, id)
	warnOfNames(err)
	r := jobreport.New(id, jobreport.Data{Records: records, Names: names, Site: cfg.Site(), Now: time.Now()})
	if g.json {
		return printJSON(w, r)
	}
	printReport(w, r)
	printLearning(w, cfg)
	return nil
}

// printLearning prints the state of learning, if this host shows it to the caller.
func printLearning(w io.Writer, cfg config.Config) {
	if text := learningHere(cfg); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
}

// addTags sets the admin_comment in the newest records of jobs that have not ended, because slurmctld sends it to
// slurmdbd only when a run ends. If a job was requeued and slurmdbd has no record of its next run yet, the newest
// record has the state REQUEUED. The records remain unchanged if slurmctld does not answer, or does not show the user
// the job.
func addTags(ctx context.Context, ctl jobsOf, id uint32, records []slurm.Allocation) {
	open := map[uint32]*slurm.Allocation{} // by job id
	for k := range records {
		r := &records[k]
		if delete(open, r.ID); r.End.IsZero() || r.State == "REQUEUED" {
			open[r.ID] = r
		}
	}
	if len(open) == 0 {
		return
	}
	jobs, err := ctl(ctx, id)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if r := open[j.ID]; r != nil && j.AdminComment != "" {
			r.Comment = j.AdminComment
		}
	}
}

// unseenJob is the error for a job whose record slurmdbd does not show to the caller. It wraps slurm.ErrNoJob.
type unseenJob struct{ id string }

func (e unseenJob) Error() string {
	return fmt.Sprintf("slurmdbd shows you no record of job %s: the id is wrong, the job was submitted only a few "+
		"seconds ago, or it belongs to another user and your site hides other users' jobs (PrivateData); check the "+
		"id with `sacct -X`", e.id)
}

func (unseenJob) Unwrap() error { return slurm.ErrNoJob }

// reportLatest prints a list of the user's latest jobs with GPUs.
func reportLatest(
	ctx context.Context, w io.Writer, g *globals, o reportOptions, cfg config.Config, own *slurm.Client,
) error {
	now := time.Now()
	from := now.AddDate(0, 0, -reportDays)
	if o.since != "" {
		var err error
		if from, err = readTime(o.since); err != nil {
			return err
		}
	}
	if o.last < 1 || !from.Before(now) {
		return usageError{errors.New("--last must be at least 1, and --since must be before the present")}
	}
	records, err := allocations(ctx, own, cfg, from, now)
	if err != nil {
		return err
	}
	names, err := own.Names(ctx, from, now)
	warnOfNames(err)
	all := jobreport.Each(jobreport.Data{Records: records, Names: names, Site: cfg.Site(), Now: now})
	all = all[:min(len(all), o.last)]
	if g.json {
		return printJSON(w, append([]jobreport.Report{}, all...))
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "slurmdbd has no record of a GPU job of yours since %s\n", from.Format(time.DateTime))
		return err
	}
	printReports(w, all)
	printLearning(w, cfg)
	return nil
}

// warnOfNames prints a warning if err is not nil, in which case the output does not include the job names. A user can
// cause this error by choosing a hostile job name.
func warnOfNames(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "caelum: couldn't read the job names, so the output does not show them:",
			printable(err.Error()))
	}
}
