package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/sim"
	"caelum/internal/sim/report"
	"caelum/internal/sim/trace"
)

// simulation is the JSON output of caelum simulate. Times are in seconds.
type simulation struct {
	Workload string       `json:"workload"`
	Jobs     int          `json:"jobs"`
	LeftOut  []trace.Left `json:"left_out,omitempty"`
	// Assumed is the number of jobs that are assumed to need a whole GPU, because their usage was not recorded.
	Assumed int `json:"assumed_whole,omitempty"`
	// Several is the number of jobs that are assumed to need whole GPUs, because their usage was recorded only as a sum
	// over several GPUs.
	Several int `json:"several_whole,omitempty"`
	// Needs maps each profile to the number of jobs that need it. Each job is counted under the profile of the first
	// GPU model that has a suitable one.
	Needs    map[string]int `json:"needs"`
	GPUs     int            `json:"gpus"`
	Cluster  string         `json:"cluster"` // the value of --gpus
	PerNode  int            `json:"per_node,omitempty"`
	Queue    string         `json:"queue"`
	Offers   bool           `json:"offers,omitempty"`
	Ends     string         `json:"ends"`
	Full     bool           `json:"whole_gpus,omitempty"`
	Policies []run          `json:"policies"`

	observed bool
}

// newSimulation returns the output without the policies' results. It includes actual waiting times if the workload
// does.
func newSimulation(o simulateOptions, c sim.Config, workload *trace.Workload) simulation {
	s := simulation{
		Workload: o.describe(),
		Jobs:     len(workload.Jobs),
		LeftOut:  workload.Left,
		Assumed:  workload.Assumed,
		Several:  workload.Several,
		Needs:    needs(workload.Jobs, c.GPUs),
		GPUs:     len(c.GPUs),
		Cluster:  strings.Join(o.gpus, ","),
		PerNode:  o.perNode,
		Queue:    o.queue,
		Offers:   o.offers,
		Ends:     o.ends,
		Full:     o.wholeGPUs,
		observed: len(o.observed) > 0,
	}
	if o.recorded() {
		s.Policies = append(s.Policies, asItWas(workload.Jobs))
	}
	return s
}

// needs returns, for each profile, the number of jobs that need it. Each job is counted under the profile of the first
// GPU model that has a suitable one.
func needs(jobs []trace.Job, gpus []*mig.Model) map[string]int {
	count := map[string]int{}
	kinds := sim.Kinds(gpus)
	for _, j := range jobs {
		for _, b := range kinds {
			if name, ok := j.On(b); ok {
				count[name]++
				break
			}
		}
	}
	return count
}

// loss reports whether the simulation runs without a queue and rejects jobs that cannot start on submission.
func (s simulation) loss() bool { return s.Queue == "none" }

// run is the result for one policy.
type run struct {
	Policy string `json:"policy"`
	// Never describes a job that can never start. If it is not empty, all figures are 0.
	Never       string  `json:"never,omitempty"`
	Layouts     string  `json:"layouts,omitempty"` // only for the static policy
	Started     int     `json:"started"`
	Refused     int     `json:"refused"`
	Prompt      int     `json:"prompt,omitempty"` // the number of jobs that could have started on submission
	Found       int     `json:"found,omitempty"`  // the number of jobs in Prompt whose slices were offered
	MeanWait    float64 `json:"mean_wait"`
	MedianWait  float64 `json:"median_wait"`
	P95Wait     float64 `json:"p95_wait"`
	P99Wait     float64 `json:"p99_wait"`
	LongestWait float64 `json:"longest_wait"`
	Turnaround  float64 `json:"mean_turnaround,omitempty"`
	// Makespan, Utilisation and Frag are always 0 in the row for the actual waiting times.
	Makespan    float64 `json:"makespan,omitempty"`
	Utilisation float64 `json:"utilisation,omitempty"`
	Frag        float64 `json:"fragmentation,omitempty"`
	Accepted    float64 `json:"accepted"` // the fraction of the requested unit-seconds that was accepted
	Worst       float64 `json:"worst_profile"`
	Created     int     `json:"created"`
	Destroyed   int     `json:"destroyed"`
	Reused      int     `json:"reused"`
	Switched    int     `json:"switched,omitempty"`
	Active      float64 `json:"active_gpus,omitempty"` // the mean number of GPUs on which a job runs

	words    string // Layouts as text for readers; only for the static policy
	recorded *report.Recorder
}

func newRun(policy, layouts string, r *sim.Result) run {
	return run{
		Policy:      policy,
		Layouts:     layouts,
		Started:     r.Started,
		Refused:     r.Refused,
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
		Switched:    r.Switched,
		Active:      r.Active,
	}
}

// reality is the name of the row that shows the jobs' actual waiting times and no other figures.
const reality = "(as it was)"

// asItWas returns the row for the jobs' actual waiting times.
func asItWas(jobs []trace.Job) run {
	r := sim.Result{Started: len(jobs)}
	for _, j := range jobs {
		r.Waits.Add(j.Waited)
	}
	return newRun(reality, "", &r)
}

// leftOut returns the number of omitted jobs and the reason as text, or "" if no jobs were omitted.
func leftOut(all []trace.Left) (text string) {
	for _, l := range all {
		text += fmt.Sprintf("; omitted %s: %s", plural(l.Jobs, "job"), l.Reason)
	}
	return text
}

// fewJobs is the number of jobs below which the output warns that the figures mean little. If run times are
// exponentially distributed, the mean over 30 jobs has a standard error of 18%.
const fewJobs = 30

// facts returns the lines that describe the cluster, the options and the workload.
func (s simulation) facts() []string {
	setting := plural(s.Jobs, "job") + " on " + s.Cluster
	if s.PerNode > 0 {
		setting += fmt.Sprintf(", %d per node", s.PerNode)
	}
	setting += ", queue " + s.Queue
	if s.Offers {
		setting += ", through offers"
	}
	setting += ", ends " + s.Ends
	if s.Full {
		setting += ", full GPUs"
	}
	var needs []string
	mostFirst := func(a, b string) int { return cmp.Or(cmp.Compare(s.Needs[b], s.Needs[a]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(s.Needs), mostFirst) {
		needs = append(needs, fmt.Sprintf("%s %d", name, s.Needs[name]))
	}
	all := []string{setting, "jobs by profile: " + strings.Join(needs, ", ")}
	if s.Jobs < fewJobs {
		all = append(all, fmt.Sprintf("with only %s, the figures depend mostly on chance; simulate at least %d jobs",
			plural(s.Jobs, "job"), fewJobs))
	}
	for _, l := range s.LeftOut {
		all = append(all, fmt.Sprintf("omitted %s: %s", plural(l.Jobs, "job"), l.Reason))
	}
	if s.Assumed > 0 {
		all = append(all, fmt.Sprintf("assumed a whole GPU for %s without recorded usage", plural(s.Assumed, "job")))
	}
	if s.Several > 0 {
		const several = "assumed whole GPUs for %s that used several GPUs"
		all = append(all, fmt.Sprintf(several, plural(s.Several, "job")))
	}
	return all
}

// page returns the result as a page with charts.
func (s simulation) page(gpus []*mig.Model) report.Page {
	p := report.Page{
		Title:   s.Workload,
		Command: commandLine(os.Args),
		Date:    time.Now().Format("2006-01-02 15:04 MST"),
		Loss:    s.loss(),
		Facts:   s.facts(),
	}
	for _, b := range gpus {
		p.Grids = append(p.Grids, b.Grid)
	}
	for _, r := range s.Policies {
		if r.Never != "" {
			p.Facts = append(p.Facts, r.Policy+": "+r.Never)
			continue
		}
		p.Policies = append(p.Policies, report.Policy{
			Reference:   r.Policy == reality,
			Name:        r.Policy,
			Note:        r.words,
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

// bare matches arguments that do not need to be quoted in a shell.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./,:=@%+-]+$`)

// commandLine returns a command as a user would type it in a shell.
func commandLine(args []string) string {
	words := []string{filepath.Base(args[0])}
	for _, arg := range args[1:] {
		if !bare.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
