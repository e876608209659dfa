package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/mig"
	"caelum/internal/report"
	"caelum/internal/sim"
	"caelum/internal/trace"
)

// simulation is the output of caelum simulate, in its JSON form. Times are in seconds.
type simulation struct {
	Workload string       `json:"workload"`
	Jobs     int          `json:"jobs"`
	LeftOut  []trace.Left `json:"left_out,omitempty"`
	// Assumed counts the jobs that are assumed to need a whole GPU because their usage was not recorded.
	Assumed int `json:"assumed_whole,omitempty"`
	// Several counts the jobs that are assumed to need whole GPUs because the recorded usage is the sum of several
	// GPUs.
	Several int `json:"several_whole,omitempty"`
	// Needs counts the jobs by the profile that they need, each on the first GPU model that has a suitable profile.
	Needs    map[string]int `json:"needs"`
	GPUs     int            `json:"gpus"`
	Cluster  string         `json:"cluster"` // --gpus
	PerNode  int            `json:"per_node,omitempty"`
	Queue    string         `json:"queue"`
	Offers   bool           `json:"offers,omitempty"`
	Ends     string         `json:"ends"`
	Create   float64        `json:"create,omitempty"` // seconds, as is Destroy
	Destroy  float64        `json:"destroy,omitempty"`
	Memory   *sim.Memory    `json:"memory,omitempty"`
	Policies []run          `json:"policies"`
}

// run is the result of one policy.
type run struct {
	Policy string `json:"policy"`
	// Never names the job that can never start, if there is one. The other figures are then 0.
	Never       string  `json:"never,omitempty"`
	Layouts     string  `json:"layouts,omitempty"` // static only
	Started     int     `json:"started"`
	Refused     int     `json:"refused"`
	Requeued    int     `json:"requeued"`
	Lost        float64 `json:"lost,omitempty"`
	Prompt      int     `json:"prompt,omitempty"` // jobs that could start when they were submitted
	Found       int     `json:"found,omitempty"`  // of these, jobs whose slices were offered
	MeanWait    float64 `json:"mean_wait"`
	MedianWait  float64 `json:"median_wait"`
	P95Wait     float64 `json:"p95_wait"`
	P99Wait     float64 `json:"p99_wait"`
	LongestWait float64 `json:"longest_wait"`
	Turnaround  float64 `json:"mean_turnaround,omitempty"`
	Makespan    float64 `json:"makespan,omitempty"` // 0 for the actual waits, as are the next two
	Utilisation float64 `json:"utilisation,omitempty"`
	Frag        float64 `json:"fragmentation,omitempty"`
	Accepted    float64 `json:"accepted"` // share of the requested units times time
	Worst       float64 `json:"worst_profile"`
	Created     int     `json:"created"`
	Destroyed   int     `json:"destroyed"`
	Reused      int     `json:"reused"`
	Held        int     `json:"held"`

	recorded *report.Recorder
}

func newRun(policy, layouts string, r *sim.Result) run {
	return run{
		Policy:      policy,
		Layouts:     layouts,
		Started:     r.Started,
		Refused:     r.Refused,
		Requeued:    r.Requeued,
		Lost:        r.Lost,
		Prompt:      r.Prompt,
		Found:       r.Found,
		MeanWait:    r.Waits.Mean(),
		MedianWait:  r.Waits.At(0.5),
		P95Wait:     r.Waits.At(0.95),
		P99Wait:     r.Waits.At(0.99),
		LongestWait: r.Waits.Longest,
		Turnaround:  r.MeanTurnaround(),
		Makespan:    r.Makespan,
		Utilisation: r.Utilisation,
		Frag:        r.Frag,
		Accepted:    r.Accepted(),
		Worst:       r.Worst(),
		Created:     r.Created,
		Destroyed:   r.Destroyed,
		Reused:      r.Reused,
		Held:        r.Held,
	}
}

// reality is the name of the row with the actual waits of the jobs. This row has no other figures.
const reality = "(as it was)"

// asItWas returns the row with the actual waits of the jobs.
func asItWas(jobs []trace.Job) run {
	r := sim.Result{Started: len(jobs)}
	for _, j := range jobs {
		r.Waits.Add(j.Waited)
	}
	return newRun(reality, "", &r)
}

// leftOut lists the jobs that were left out, with the reasons. It returns "" if there are none.
func leftOut(all []trace.Left) (text string) {
	for _, l := range all {
		text += fmt.Sprintf("; left out: %d, %s", l.Jobs, l.Reason)
	}
	return text
}

func seconds0(s float64) string { return strconv.FormatFloat(s, 'f', 0, 64) }
func share(x float64) string    { return fmt.Sprintf("%.1f%%", 100*x) }

// facts returns lines that describe the cluster, the options and the workload.
func (s simulation) facts() []string {
	setting := plural(s.Jobs, "job") + " on " + s.Cluster
	if s.PerNode > 0 {
		setting += fmt.Sprintf(", %d a node", s.PerNode)
	}
	setting += ", queue " + s.Queue
	if s.Offers {
		setting += ", through offers"
	}
	setting += ", ends " + s.Ends
	if s.Create+s.Destroy > 0 {
		setting += fmt.Sprintf(", %v s to create an instance and %v s to destroy it", s.Create, s.Destroy)
	}
	if s.Memory != nil {
		setting += fmt.Sprintf(", memory predicted with an error of %v and a margin of %v",
			s.Memory.Error, s.Memory.Margin)
	}
	var needs []string
	mostFirst := func(a, b string) int { return cmp.Or(cmp.Compare(s.Needs[b], s.Needs[a]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(s.Needs), mostFirst) {
		needs = append(needs, fmt.Sprintf("%s %d", name, s.Needs[name]))
	}
	all := []string{setting, "jobs by profile: " + strings.Join(needs, ", ")}
	for _, l := range s.LeftOut {
		all = append(all, fmt.Sprintf("left out: %d, %s", l.Jobs, l.Reason))
	}
	if s.Assumed > 0 {
		all = append(all, fmt.Sprintf("assumed to need a whole GPU: %d, usage not recorded", s.Assumed))
	}
	if s.Several > 0 {
		const several = "assumed to need whole GPUs: %d, usage recorded only as the sum of several GPUs"
		all = append(all, fmt.Sprintf(several, s.Several))
	}
	return all
}

// print prints a table. loss: there is no queue. slower: print TURNAROUND, which is then more than wait and duration.
// requeues: jobs may be requeued. offers: policies acted through offers.
func (s simulation) print(w io.Writer, loss, slower, requeues, offers bool) {
	fmt.Fprintf(w, "%s: %s\n", s.Workload, strings.Join(s.facts(), "\n"))
	fmt.Fprintln(w)
	head := []string{"POLICY", "MEAN WAIT", "MEDIAN", "P95", "P99", "LONGEST", "MAKESPAN", "UTIL", "FRAG", "CUT"}
	if loss {
		head = []string{"POLICY", "STARTED", "REFUSED", "ACCEPTED", "WORST", "UTIL", "FRAG", "CUT"}
	}
	if slower {
		head = slices.Insert(head, 1, "TURNAROUND")
	}
	if requeues {
		head = append(head, "REQUEUED", "LOST")
	}
	if offers {
		head = append(head, "ON OFFER")
	}
	table, right := [][]string{head}, make([]bool, len(head))
	for k := range right {
		right[k] = k > 0
	}
	for _, r := range s.Policies {
		row := []string{
			r.Policy,
			fmt.Sprintf("%.1f", r.MeanWait),
			seconds0(r.MedianWait),
			seconds0(r.P95Wait),
			seconds0(r.P99Wait),
			seconds0(r.LongestWait),
			seconds0(r.Makespan),
		}
		if loss {
			row = []string{
				r.Policy,
				strconv.Itoa(r.Started),
				strconv.Itoa(r.Refused),
				share(r.Accepted),
				share(r.Worst),
			}
		}
		if slower {
			row = slices.Insert(row, 1, fmt.Sprintf("%.1f", r.Turnaround))
		}
		if r.Never != "" {
			row = row[:1]
		} else if r.Policy == reality {
			if row = row[:len(row)-1]; slower {
				row[1] = "-"
			}
		}
		if r.Never != "" || r.Policy == reality {
			table = append(table, append(row, slices.Repeat([]string{"-"}, len(head)-len(row))...))
			continue
		}
		row = append(row, share(r.Utilisation), fmt.Sprintf("%.2f", r.Frag), strconv.Itoa(r.Created))
		if requeues {
			row = append(row, strconv.Itoa(r.Requeued), share(r.Lost))
		}
		switch {
		case offers && r.Prompt > 0:
			row = append(row, share(float64(r.Found)/float64(r.Prompt)))
		case offers:
			row = append(row, "-")
		}
		table = append(table, row)
	}
	rows(w, right, table)
	for _, r := range s.Policies {
		if r.Never != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Policy, r.Never)
		}
		if r.Layouts != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Policy, r.Layouts)
		}
	}
}

// page returns the result as a page with drawings. loss: there is no queue.
func (s simulation) page(gpus []*mig.Model, loss bool) report.Page {
	p := report.Page{Title: s.Workload, Loss: loss, Facts: s.facts()}
	for _, b := range gpus {
		p.Grids = append(p.Grids, b.Grid)
	}
	for _, r := range s.Policies {
		if r.Never != "" {
			p.Facts = append(p.Facts, r.Policy+": "+r.Never)
			continue
		}
		p.Policies = append(p.Policies, report.Policy{
			Name:        r.Policy,
			Note:        r.Layouts,
			Started:     r.Started,
			Refused:     r.Refused,
			Created:     r.Created,
			MeanWait:    r.MeanWait,
			MedianWait:  r.MedianWait,
			P95Wait:     r.P95Wait,
			P99Wait:     r.P99Wait,
			LongestWait: r.LongestWait,
			Utilisation: r.Utilisation,
			Frag:        r.Frag,
			Accepted:    r.Accepted,
			Recorded:    r.recorded,
		})
	}
	return p
}

func (s simulation) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write(
		[]string{
			"policy", "never", "layouts", "started", "refused", "mean_turnaround", "mean_wait", "median_wait",
			"p95_wait", "p99_wait", "longest_wait", "makespan", "utilisation", "fragmentation", "accepted",
			"worst_profile", "created", "destroyed", "reused", "held", "requeued", "lost", "prompt", "found",
		},
	)
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, r := range s.Policies {
		c.Write(
			[]string{
				r.Policy,
				r.Never,
				r.Layouts,
				strconv.Itoa(r.Started),
				strconv.Itoa(r.Refused),
				number(r.Turnaround),
				number(r.MeanWait),
				number(r.MedianWait),
				number(r.P95Wait),
				number(r.P99Wait),
				number(r.LongestWait),
				number(r.Makespan),
				number(r.Utilisation),
				number(r.Frag),
				number(r.Accepted),
				number(r.Worst),
				strconv.Itoa(r.Created),
				strconv.Itoa(r.Destroyed),
				strconv.Itoa(r.Reused),
				strconv.Itoa(r.Held),
				strconv.Itoa(r.Requeued),
				number(r.Lost),
				strconv.Itoa(r.Prompt),
				strconv.Itoa(r.Found),
			},
		)
	}
	c.Flush()
	return c.Error()
}

// withProgress returns jobs as a sequence. If w is a terminal, it shows the percentage of the jobs that the simulation
// of the policy has read.
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
