package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"caelum/internal/cli/jobreport"
	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/sim/report"
	"caelum/internal/slurm"
)

// savedReport is the JSON output of caelum usage --saved.
type savedReport struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	jobreport.Saved
	// Waits is the simulation of the waits. If there is none, NoWaits is the reason.
	Waits   *replay `json:"waits,omitempty"`
	NoWaits string  `json:"no_waits,omitempty"`
}

// mostUsers is the number of users that the table and the page show.
const mostUsers = 10

func runSaved(ctx context.Context, w io.Writer, g *globals, o usageOptions) error {
	from, to, err := o.period(time.Now())
	if err != nil {
		return err
	}
	cfg, err := config.Load(g.config)
	if err != nil {
		return err
	}
	var page *report.File
	if o.html != "" {
		if page, err = report.Create(o.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		defer page.Drop()
	}
	records, err := allocations(ctx, slurm.New(slurm.Options{Sacct: "sacct", Timeout: dbdTimeout}), cfg, from, to)
	if err != nil {
		return err
	}
	data := jobreport.Data{Records: records, Site: cfg.Site(), Now: to}
	r := savedReport{From: from.Unix(), To: to.Unix(), Saved: jobreport.NewSaved(data, from, to)}
	full := slices.ContainsFunc(records, func(a slurm.Allocation) bool { return a.Allocated.Profiles()[mig.Full] > 0 })
	waits, err := o.replay(ctx, cfg.Policy, from, to, full)
	if usage := (usageError{}); errors.As(err, &usage) {
		return err
	} else if err != nil {
		r.NoWaits = err.Error()
	} else {
		r.Waits = &waits
	}
	if page != nil {
		if err := page.Write(r.page(), 0o600); err != nil {
			return err
		}
	}
	if g.json {
		return printJSON(w, r)
	}
	r.print(w)
	return nil
}

// verdict returns the sentences with the most important figures.
func (r savedReport) verdict() string {
	t, hours := r.Total, float64(r.To-r.From)/3600
	text := fmt.Sprintf("The slices of %s took %s GPU-hours. Whole GPUs for the same jobs would have taken %s, if the "+
		"jobs ran as long on them.",
		plural(t.Jobs, "job"), hundredths(t.SliceHours), hundredths(t.WholeHours))
	if t.Saves() > 0 {
		text += fmt.Sprintf(" The slices saved %s GPU-hours (%.0f%%), as much as %.1f GPUs in the whole period.",
			hundredths(t.Saves()), 100*t.Saves()/t.WholeHours, t.Saves()/hours)
	}
	return text
}

// remarks returns the sentences about jobs whose slices were too small or too large, and about omitted runs.
func (r savedReport) remarks() (all []string) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	t := r.Total
	add(t.OutOfMemory, "%s ran out of GPU memory, or would have; Caelum ran %d of them again on a larger slice. The "+
		"failed runs count only as hours of slices.", plural(t.OutOfMemory, "job"), r.Rerun)
	add(t.TooLarge, "The peak of %s fits into a smaller profile (%s GPU-hours); `caelum report ID` names it.",
		plural(t.TooLarge, "job"), hundredths(r.TooLargeHours))
	add(r.Unknown, "The figures omit %s, because the records do not show the slices' share of the GPU; "+
		"list gres/gpu:MODEL and gres/mig:PROFILE in AccountingStorageTRES.", plural(r.Unknown, "run"))
	return all
}

func hundredths(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }

// savedColumns are the columns of the table of users.
var savedColumns = []string{"USER", "JOBS", "WHOLE GPUS", "SLICES", "SAVED", "OUT OF MEMORY", "TOO LARGE"}

// table returns the rows for the users who saved most, and for all users. Names are not yet safe to print.
func (r savedReport) table() (table [][]string) {
	total := r.Total
	total.Name = "total"
	for _, s := range append(slices.Clone(r.Users[:min(len(r.Users), mostUsers)]), total) {
		table = append(table, []string{s.Name, strconv.Itoa(s.Jobs), hundredths(s.WholeHours),
			hundredths(s.SliceHours), hundredths(s.Saves()), strconv.Itoa(s.OutOfMemory), strconv.Itoa(s.TooLarge)})
	}
	return table
}

// sizeSources describes what determined the size of a job (tags.By). The users themselves named the sizes of jobs that
// have none.
var sizeSources = map[string]string{
	"": "named by the user", "args": "arguments and earlier runs of the job", "key": "earlier runs of the job",
	"user": "earlier runs of the script", "site": "other users' runs", "name": "earlier jobs with the name",
	"owner": "the user's earlier jobs", "default": "the default", "full": "several GPUs per node",
	"memory": "--mig-mem", "off": "--mig=off",
}

// sizes returns the table of how often sizes were right, by their source.
func (r savedReport) sizes() [][]string {
	table := [][]string{{"SIZE FROM", "JOBS", "WELL SIZED", "TOO SMALL", "TOO LARGE"}}
	for _, s := range r.Sizes {
		source, known := sizeSources[s.By]
		if !known {
			source = printable(s.By)
		}
		table = append(table, []string{source, strconv.Itoa(s.Jobs), strconv.Itoa(s.WellSized),
			strconv.Itoa(s.TooSmall), strconv.Itoa(s.TooLarge)})
	}
	return table
}

// period describes the time that the report covers.
func (r savedReport) period() string {
	const format = "2006-01-02 15:04"
	return fmt.Sprintf("from %s to %s", time.Unix(r.From, 0).Format(format), time.Unix(r.To, 0).Format(format))
}

func (r savedReport) print(w io.Writer) {
	fmt.Fprintf(w, "GPU-hours of slices and of whole GPUs %s\n\n%s\n\n", r.period(), wrapped(r.verdict()))
	table := [][]string{savedColumns}
	for _, row := range r.table() {
		row[0] = printable(row[0])
		table = append(table, row)
	}
	rows(w, []bool{false, true, true, true, true, true, true}, table)
	if n := len(r.Users) - mostUsers; n > 0 {
		fmt.Fprintf(w, "and %s more\n", plural(n, "user"))
	}
	fmt.Fprintln(w)
	rows(w, []bool{false, true, true, true, true}, r.sizes())
	for _, text := range r.remarks() {
		fmt.Fprintf(w, "\n%s\n", wrapped(text))
	}
	if r.Waits == nil {
		fmt.Fprintf(w, "\n%s\n", wrapped(printable("The waits were not simulated: "+r.NoWaits)))
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", wrapped(printable(r.Waits.Describe)))
	rows(w, []bool{false, true, true, true, true}, r.Waits.table())
}

// page returns the report as a page with charts.
func (r savedReport) page() report.Saved {
	p := report.Saved{
		Title: "What slices saved " + r.period(), Verdict: r.verdict(), Command: commandLine(os.Args),
		Date: time.Now().Format("2006-01-02 15:04 MST"), Remarks: r.remarks(), Heads: savedColumns, Rows: r.table(),
	}
	for _, s := range r.Users[:min(len(r.Users), mostUsers)] {
		p.Users = append(p.Users, report.Bar{Name: s.Name, Whole: s.WholeHours, Slices: s.SliceHours})
	}
	for _, s := range r.Days {
		p.Days = append(p.Days, report.Bar{Name: s.Name, Whole: s.WholeHours, Slices: s.SliceHours})
	}
	if r.Waits == nil {
		p.Remarks = append(p.Remarks, "The waits were not simulated: "+r.NoWaits)
		return p
	}
	p.Simulated = r.Waits.Describe
	p.Policies = r.Waits.page(nil).Policies
	return p
}
