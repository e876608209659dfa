package main

import (
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"caelum/internal/sim/trace"
)

// print writes the facts about the simulation and the table of policies.
func (s simulation) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n", s.Workload, strings.Join(s.facts(), "\n"))
	columns := s.columns()
	table, right := make([][]string, 1+len(s.Policies)), make([]bool, len(columns))
	for k, c := range columns {
		right[k] = k > 0
		table[0] = append(table[0], c.head)
		for n, r := range s.Policies {
			text := "-"
			if k == 0 || r.Never == "" && (c.actual || r.Policy != reality) {
				text = c.text(r)
			}
			table[1+n] = append(table[1+n], text)
		}
	}
	rows(w, right, table)
	if tie := s.page(nil).Tie(); tie != "" {
		fmt.Fprintf(w, "\n%s\n", tie)
	}
	for _, r := range s.Policies {
		if r.Never != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Policy, r.Never)
		}
		if r.Layouts != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Policy, r.Layouts)
		}
	}
}

// column is a column of the table. The row of the jobs' actual waiting times has values only in columns whose actual
// field is true.
type column struct {
	head   string
	actual bool
	text   func(run) string
}

// columns returns the columns of the table.
func (s simulation) columns() []column {
	all := []column{{"POLICY", true, func(r run) string { return r.Policy }}}
	if s.loss() {
		all = append(all,
			column{"STARTED", false, func(r run) string { return strconv.Itoa(r.Started) }},
			column{"REFUSED", false, func(r run) string { return strconv.Itoa(r.Refused) }},
			column{"ACCEPTED", false, func(r run) string { return share(r.Accepted) }},
			column{"WORST", false, func(r run) string { return share(r.Worst) }})
	} else {
		all = append(all,
			column{"MEAN WAIT", true, func(r run) string { return fmt.Sprintf("%.1f", r.MeanWait) }},
			column{"MEDIAN", true, func(r run) string { return seconds0(r.MedianWait) }},
			column{"P95", true, func(r run) string { return seconds0(r.P95Wait) }},
			column{"P99", true, func(r run) string { return seconds0(r.P99Wait) }},
			column{"LONGEST", true, func(r run) string { return seconds0(r.LongestWait) }},
			column{"MAKESPAN", false, func(r run) string { return seconds0(r.Makespan) }})
	}
	all = append(all,
		column{"UTIL", false, func(r run) string { return share(r.Utilisation) }},
		column{"FRAG", false, func(r run) string { return fmt.Sprintf("%.2f", r.Frag) }},
		column{"CUT", false, func(r run) string { return strconv.Itoa(r.Created) }})
	if s.observed {
		all = append(all, column{"GPUS", false, func(r run) string { return fmt.Sprintf("%.1f", r.Active) }})
	}
	if s.Full {
		all = append(all, column{"SWITCHED", false, func(r run) string { return strconv.Itoa(r.Switched) }})
	}
	if s.Offers {
		all = append(all, column{"ON OFFER", false, func(r run) string {
			if r.Prompt == 0 {
				return "-"
			}
			return share(float64(r.Found) / float64(r.Prompt))
		}})
	}
	return all
}

func seconds0(s float64) string { return strconv.FormatFloat(s, 'f', 0, 64) }
func share(x float64) string    { return fmt.Sprintf("%.1f%%", 100*x) }

// progress shows on a terminal how far the simulation is. The zero value shows nothing.
type progress struct {
	w     io.Writer // nil if it is not a terminal
	what  string    // for example "policy 2 of 4 (static)"
	shown int       // the percentage shown
}

// newProgress returns the progress of a simulation that writes to w.
func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &progress{w: w}
		}
	}
	return &progress{}
}

// begin shows the beginning of a part.
func (p *progress) begin(what string) {
	p.end()
	p.what, p.shown = what, -1
	p.show(0)
}

// show shows the completed fraction of a part.
func (p *progress) show(fraction float64) {
	if percent := int(100 * fraction); p.w != nil && percent != p.shown {
		p.shown = percent
		fmt.Fprintf(p.w, "\r%s: %3d%%", p.what, percent)
	}
}

// end clears the line.
func (p *progress) end() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%*s\r", len(p.what)+6, "")
	}
}

// jobs returns the jobs as a sequence, and shows the fraction of the jobs that the simulation has read.
func (p *progress) jobs(all []trace.Job) iter.Seq[trace.Job] {
	return func(yield func(trace.Job) bool) {
		for k, j := range all {
			if p.show(float64(k) / float64(len(all))); !yield(j) {
				break
			}
		}
	}
}
