package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/cli/gpuhours"
	"caelum/internal/config"
	"caelum/internal/slurm"
)

// usageOptions holds the flags of caelum usage.
type usageOptions struct {
	since, until string
	by           []string
	saved        bool
	html         string
	gpus         []string
}

func newUsage(g *globals) *cobra.Command {
	var o usageOptions
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Add up the GPU-hours of accounts, users and partitions",
		Long: `usage reads the site's jobs from slurmdbd and adds up the time for which they held slices and whole
GPUs. SLICE-HOURS counts each slice and each whole GPU as one, as Slurm does. GPU-HOURS weights each
of them by the share of the GPU that it occupied: an hour on a 2g.10gb of an A100-40GB, which
occupies 2 of 8 units, is 0.25 GPU-hours.

If the agents store summaries of the runs (the accounting_field key in caelum.yaml), usage counts
the slices that a job actually held, which can be larger than the requested ones. Without summaries,
it counts the requested profiles from AllocTRES and ReqTRES, so AccountingStorageTRES must list
every gres/mig:PROFILE. For --exclusive jobs, only the requested slices count. Jobs that are still
running count until now, or until --until.

With --saved, usage compares the slices with the whole GPUs that the same jobs would have taken: the
GPU-hours, which users saved most, and how many jobs ran out of GPU memory or had a slice that was
too large for their peak, also by what determined their sizes. It then simulates how long the jobs
would have waited on the same GPUs, with slices and with whole GPUs, like caelum simulate --queue
easy --ends limits. The simulation assumes that the jobs arrive as they did, run as long on a whole
GPU as they did on their slices, and have the managed GPUs for themselves. It replays at most the
last ` + strconv.Itoa(mostReplayed) + ` jobs on slices.

slurmdbd decides which users may see which jobs (PrivateData in slurmdbd.conf).`,
		Example: `  caelum usage                                    # accounts and users, since the first of this month
  caelum usage --since 2026-10-01 --until 2026-11-01 --by account
  caelum usage --by partition --json
  caelum usage --saved                            # the last week
  caelum usage --saved --html saved.html          # the last 30 days, as a page with charts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch by := cmd.Flags().Changed("by"); {
			case o.saved && by:
				return usageError{errors.New("--by does not apply to --saved")}
			case o.saved:
				return runSaved(cmd.Context(), cmd.OutOrStdout(), g, o)
			case o.html != "" || o.gpus != nil:
				return usageError{errors.New("--html and --gpus require --saved")}
			}
			return runUsage(cmd.Context(), cmd.OutOrStdout(), g, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "",
		"start of the period, for example 2026-11-21 or 2026-11-21T04:57:35 (default: the first of this month; "+
			"with --saved the last 7 days, with --html the last 30 days)")
	f.StringVar(&o.until, "until", "", "end of the period (default: now)")
	f.StringSliceVar(&o.by, "by", []string{"account", "user"}, "columns to group by: account, user, partition")
	f.BoolVar(&o.saved, "saved", false, "compare the slices with whole GPUs for the same jobs")
	f.StringVar(&o.html, "html", "", "--saved: also write a self-contained HTML page with charts to this file")
	f.StringSliceVar(&o.gpus, "gpus", nil, "--saved: the GPUs for the simulation, BOARD:COUNT,... (default: the "+
		"managed GPUs in slurmctld's node records)")
	return cmd
}

// usageReport is the JSON form of the output. Keys not listed in --by are empty.
type usageReport struct {
	From  int64            `json:"from"`
	To    int64            `json:"to"`
	Rows  []gpuhours.Total `json:"rows"`
	Total gpuhours.Total   `json:"total"`
}

func runUsage(ctx context.Context, w io.Writer, g *globals, o usageOptions) error {
	from, to, err := o.period(time.Now())
	if err != nil {
		return err
	}
	if _, err := gpuhours.Sum(nil, o.by); err != nil {
		return usageError{fmt.Errorf("--by: %w", err)}
	}
	cfg, err := config.Load(g.config)
	if err != nil {
		return err
	}
	records, err := allocations(ctx, slurm.New(slurm.Options{Sacct: "sacct", Timeout: dbdTimeout}), cfg, from, to)
	if err != nil {
		return err
	}
	runs := gpuhours.Hours(records, from, to)
	report := usageReport{From: from.Unix(), To: to.Unix()}
	if report.Rows, err = gpuhours.Sum(runs, o.by); err != nil {
		return err
	}
	if sum, err := gpuhours.Sum(runs, nil); err != nil {
		return err
	} else if len(sum) > 0 {
		report.Total = sum[0]
	}
	if g.json {
		return printJSON(w, report)
	}
	printUsage(w, report, o.by)
	return nil
}

// period returns the times given by --since and --until, or their defaults.
func (o usageOptions) period(now time.Time) (from, to time.Time, err error) {
	from, to = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location()), now
	switch {
	case o.html != "":
		from = now.AddDate(0, 0, -30)
	case o.saved:
		from = now.AddDate(0, 0, -7)
	}
	if o.since != "" {
		if from, err = readTime(o.since); err != nil {
			return from, to, err
		}
	}
	if o.until != "" {
		if to, err = readTime(o.until); err != nil {
			return from, to, err
		}
	}
	if to.After(now) {
		to = now
	}
	if !from.Before(to) {
		return from, to, usageError{errors.New("--since must be before --until and before the present")}
	}
	return from, to, nil
}

// usagePage is the time span of one query. It is limited because slurmdbd reads all of a query's records before it
// replies. If there are too many records, the span is halved.
const usagePage = 7 * 24 * time.Hour

// summaryField returns the field that holds the summaries of runs. Without accounting_field, it is AdminComment, where
// summaries from an earlier configuration may remain.
func summaryField(cfg config.Config) slurm.AccountingField {
	if cfg.AccountingField == config.NoField {
		return slurm.AdminComment
	}
	return slurm.AccountingField(cfg.AccountingField)
}

// allocations returns the records of all jobs with GPUs that ran between from and to.
func allocations(
	ctx context.Context, dbd *slurm.Client, cfg config.Config, from, to time.Time,
) (all []slurm.Allocation, err error) {
	at := map[uint64]int{} // maps slurmdbd's index of a record to its position in all
	span := usagePage
	for !from.After(to) {
		next := from.Add(span)
		if next.After(to) {
			next = to
		}
		page, err := dbd.Allocations(ctx, summaryField(cfg), from, next)
		if errors.Is(err, slurm.ErrTooLong) && span > time.Minute {
			span /= 2
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, a := range page {
			if !hasGPUs(a.Requested) && !hasGPUs(a.Allocated) && !strings.Contains(a.Text+a.Comment, "caelum:") {
				continue // most jobs of a mixed cluster
			}
			if k, known := at[a.Index]; known {
				all[k] = a
				continue
			}
			at[a.Index] = len(all)
			all = append(all, a)
		}
		if from = next; from.Equal(to) {
			break
		}
	}
	return all, nil
}

func hasGPUs(of slurm.GRESList) bool { return of.Total("gpu")+of.Total("mig") > 0 }

func printUsage(w io.Writer, report usageReport, by []string) {
	const format = "2006-01-02 15:04"
	fmt.Fprintf(w, "GPU-hours from %s to %s\n\n", time.Unix(report.From, 0).Format(format),
		time.Unix(report.To, 0).Format(format))
	var header []string
	for _, key := range by {
		header = append(header, strings.ToUpper(key))
	}
	if len(by) == 0 {
		header = []string{""}
	}
	table := [][]string{append(header, "RUNS", "SLICE-HOURS", "GPU-HOURS")}
	for _, r := range report.Rows {
		var keys []string
		for _, key := range by {
			keys = append(keys, printable(*r.Key(key)))
		}
		if len(by) > 0 {
			table = append(table, usageCells(keys, r))
		}
	}
	total := make([]string, len(header))
	total[0] = "total"
	table = append(table, usageCells(total, report.Total))
	right := append(make([]bool, len(header)), true, true, true)
	rows(w, right, table)
	running := report.Total.UnknownRunning
	if running > 0 {
		fmt.Fprintf(w, "\nGPU-HOURS omits slices of %s, because their share of the GPU will be known\n"+
			"only after the end of the run\n", plural(running, "running job"))
	}
	if n := report.Total.UnknownRuns - running; n > 0 {
		fmt.Fprintf(w, "\nGPU-HOURS omits slices of %s, because the records do not show their share of the GPU;\n"+
			"list gres/gpu:MODEL and gres/mig:PROFILE in AccountingStorageTRES\n", plural(n, "run"))
	}
}

// usageCells returns the cells of a row, beginning with the given keys.
func usageCells(keys []string, t gpuhours.Total) []string {
	return append(keys, strconv.Itoa(t.Runs), hundredths(t.SliceHours), hundredths(t.GPUHours))
}
