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

// withProgress returns jobs as a sequence. If w is a terminal, it also prints the percentage of jobs that the
// simulation of the policy has read so far.
func withProgress(w io.Writer, policy string, jobs []trace.Job) iter.Seq[trace.Job] {
	f, ok := w.(*os.File)
	if ok {
		info, err := f.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return func(yield func(trace.Job) bool) {
		shown := -1
		for k, j := range jobs {
			if percent := 100 * k / len(jobs); ok && percent != shown {
				shown = percent
				fmt.Fprintf(w, "\r%-10s %3d%%", policy, percent)
			}
			if !yield(j) {
				break
			}
		}
		if ok {
			fmt.Fprint(w, "\r                \r")
		}
	}
}
