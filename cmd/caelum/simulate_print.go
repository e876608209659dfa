package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"

	"caelum/internal/mig"
	"caelum/internal/report"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

// How caelum simulate shows what came out.

// simulation is all of it, as JSON has it. Times are in seconds.
type simulation struct {
	Workload string       `json:"workload"`
	Jobs     int          `json:"jobs"`
	LeftOut  []trace.Left `json:"left_out,omitempty"`
	Assumed  int          `json:"assumed_whole,omitempty"` // jobs that count as a whole GPU because nobody measured what they need
	GPUs     int          `json:"gpus"`
	Queue    string       `json:"queue"`
	Ends     string       `json:"ends"`
	Policies []run        `json:"policies"`
}

// run is what came out under one policy.
type run struct {
	Policy      string  `json:"policy"`
	Layouts     string  `json:"layouts,omitempty"` // static: what was found
	Started     int     `json:"started"`
	Refused     int     `json:"refused"`
	MeanWait    float64 `json:"mean_wait"`
	MedianWait  float64 `json:"median_wait"`
	P95Wait     float64 `json:"p95_wait"`
	P99Wait     float64 `json:"p99_wait"`
	LongestWait float64 `json:"longest_wait"`
	Turnaround  float64 `json:"mean_turnaround,omitempty"`
	Makespan    float64 `json:"makespan,omitempty"` // what really happened has none, nor the next two
	Utilisation float64 `json:"utilisation,omitempty"`
	Frag        float64 `json:"fragmentation,omitempty"`
	Accepted    float64 `json:"accepted"` // of the units times time that were asked for
	Worst       float64 `json:"worst_profile"`
	Created     int     `json:"created"`
	Destroyed   int     `json:"destroyed"`
	Reused      int     `json:"reused"`
	Held        int     `json:"held"`

	recorded *report.Recorder
}

func newRun(policy, layouts string, r *sim.Result) run {
	waits := r.WaitsAt(0.5, 0.95, 0.99)
	return run{
		Policy: policy, Layouts: layouts, Started: r.Started, Refused: r.Refused, MeanWait: r.MeanWait(), MedianWait: waits[0], P95Wait: waits[1],
		P99Wait: waits[2], LongestWait: r.Longest, Turnaround: r.MeanTurnaround(), Makespan: r.Makespan, Utilisation: r.Utilisation, Frag: r.Frag, Accepted: r.Accepted(), Worst: r.Worst(),
		Created: r.Created, Destroyed: r.Destroyed, Reused: r.Reused, Held: r.Held,
	}
}

// reality is the name of the row of what really happened. Of that no more is known than the waits.
const reality = "(as it was)"

// asItWas is how long the jobs really waited.
func asItWas(jobs []trace.Job) run {
	r := sim.Result{Started: len(jobs)}
	for _, j := range jobs {
		r.Waits = append(r.Waits, j.Waited)
		r.Longest = max(r.Longest, j.Waited)
	}
	return newRun(reality, "", &r)
}

// leftOut says what was left out, if anything.
func leftOut(all []trace.Left) (text string) {
	for _, l := range all {
		text += fmt.Sprintf("; left out: %d, %s", l.Jobs, l.Reason)
	}
	return text
}

func seconds0(s float64) string { return strconv.FormatFloat(s, 'f', 0, 64) }
func share(x float64) string    { return fmt.Sprintf("%.1f%%", 100*x) }

// print prints a table; loss says that nobody waits, slower that jobs run slower on smaller slices.
func (s simulation) print(w io.Writer, loss, slower bool) {
	fmt.Fprintf(w, "%s: %d jobs on %d GPUs, queue %s, ends %s\n", s.Workload, s.Jobs, s.GPUs, s.Queue, s.Ends)
	for _, l := range s.LeftOut {
		fmt.Fprintf(w, "left out: %d, %s\n", l.Jobs, l.Reason)
	}
	if s.Assumed > 0 {
		fmt.Fprintf(w, "taken to need a whole GPU, as nobody measured it: %d\n", s.Assumed)
	}
	fmt.Fprintln(w)
	head := []string{"POLICY", "MEAN WAIT", "MEDIAN", "P95", "P99", "LONGEST", "MAKESPAN", "UTIL", "FRAG", "CUT"}
	if loss {
		head = []string{"POLICY", "STARTED", "REFUSED", "ACCEPTED", "WORST", "UTIL", "FRAG", "CUT"}
	}
	if slower {
		head = slices.Insert(head, 1, "TURNAROUND")
	}
	table, right := [][]string{head}, make([]bool, len(head))
	for k := range right {
		right[k] = k > 0
	}
	for _, r := range s.Policies {
		row := []string{r.Policy, fmt.Sprintf("%.1f", r.MeanWait), seconds0(r.MedianWait), seconds0(r.P95Wait), seconds0(r.P99Wait), seconds0(r.LongestWait), seconds0(r.Makespan)}
		if loss {
			row = []string{r.Policy, strconv.Itoa(r.Started), strconv.Itoa(r.Refused), share(r.Accepted), share(r.Worst)}
		}
		if slower {
			row = slices.Insert(row, 1, fmt.Sprintf("%.1f", r.Turnaround))
		}
		if r.Policy == reality {
			table = append(table, append(row[:len(row)-1], "-", "-", "-", "-"))
			continue
		}
		table = append(table, append(row, share(r.Utilisation), fmt.Sprintf("%.2f", r.Frag), strconv.Itoa(r.Created)))
	}
	rows(w, right, table)
	for _, r := range s.Policies {
		if r.Layouts != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Policy, r.Layouts)
		}
	}
}

// page is it as drawings.
func (s simulation) page(gpus []*mig.Board, loss bool) report.Page {
	p := report.Page{Title: s.Workload, Loss: loss, Facts: []string{fmt.Sprintf("%d jobs on %d GPUs; queue %s; ends %s", s.Jobs, s.GPUs, s.Queue, s.Ends)}}
	for _, l := range s.LeftOut {
		p.Facts = append(p.Facts, fmt.Sprintf("left out: %d, %s", l.Jobs, l.Reason))
	}
	if s.Assumed > 0 {
		p.Facts = append(p.Facts, fmt.Sprintf("taken to need a whole GPU, as nobody measured it: %d", s.Assumed))
	}
	for _, b := range gpus {
		p.Grids = append(p.Grids, b.Grid)
	}
	for _, r := range s.Policies {
		p.Policies = append(p.Policies, report.Policy{
			Name: r.Policy, Note: r.Layouts, Started: r.Started, Refused: r.Refused, Created: r.Created, MeanWait: r.MeanWait, MedianWait: r.MedianWait, P95Wait: r.P95Wait,
			P99Wait: r.P99Wait, LongestWait: r.LongestWait, Utilisation: r.Utilisation, Frag: r.Frag, Accepted: r.Accepted, Recorded: r.recorded,
		})
	}
	return p
}

func (s simulation) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"policy", "layouts", "started", "refused", "mean_turnaround", "mean_wait", "median_wait", "p95_wait", "p99_wait", "longest_wait", "makespan", "utilisation", "fragmentation",
		"accepted", "worst_profile", "created", "destroyed", "reused", "held"})
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, r := range s.Policies {
		c.Write([]string{r.Policy, r.Layouts, strconv.Itoa(r.Started), strconv.Itoa(r.Refused), number(r.Turnaround), number(r.MeanWait), number(r.MedianWait), number(r.P95Wait), number(r.P99Wait), number(r.LongestWait),
			number(r.Makespan), number(r.Utilisation), number(r.Frag), number(r.Accepted), number(r.Worst), strconv.Itoa(r.Created), strconv.Itoa(r.Destroyed), strconv.Itoa(r.Reused), strconv.Itoa(r.Held)})
	}
	c.Flush()
	return c.Error()
}

// watched says on a terminal how far a policy has come.
func watched(w io.Writer, policy string, jobs []trace.Job) iter.Seq[trace.Job] {
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
