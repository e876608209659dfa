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

	"caelum/internal/mig"
	"caelum/internal/plan"
	"caelum/internal/report"
	"caelum/internal/sim"
	"caelum/internal/trace"
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
	Sizing   string         `json:"sizing,omitempty"` // only for workloads whose jobs have speeds
	Create   float64        `json:"create,omitempty"` // the time to create an instance
	Destroy  float64        `json:"destroy,omitempty"`
	Full     *fullGPUs      `json:"whole_gpus,omitempty"`
	Memory   *sim.Memory    `json:"memory,omitempty"`
	Moves    string         `json:"moves,omitempty"`
	MoveCost string         `json:"move_cost,omitempty"` // "run": a moved job restarts from the beginning
	// Deadlines describes the fraction of jobs with deadlines, their slack, and the programs that know the deadlines.
	Deadlines string `json:"deadlines,omitempty"`
	Policies  []run  `json:"policies"`

	slower bool // true if a smaller slice or a requeue can make jobs run longer than necessary
}

// fullGPUs describes the full GPUs of a simulation: the time to switch the MIG mode, in seconds, and the maximum
// fraction of the GPUs that can be full while jobs are waiting for slices (0 means automatic).
type fullGPUs struct {
	Switch float64 `json:"switch"`
	Share  float64 `json:"whole_share"`
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
		Create:   c.Create,
		Destroy:  c.Destroy,
		Memory:   c.Memory,
	}
	if o.wholeGPUs {
		s.Full = &fullGPUs{c.Switch, o.wholeShare}
	}
	if o.deadlines > 0 {
		s.Deadlines = fmt.Sprintf("share %v, slack %s of the time limit, use %s",
			o.deadlines, o.deadlineSlack, o.deadlineUse)
		if o.equalPriority {
			s.Deadlines += ", equal priorities"
		}
	}
	if o.moves != "" {
		s.Moves, s.MoveCost = o.moves, o.moveCost
	}
	if s.slower = c.Memory != nil || o.moves != "" || o.speeds; o.speeds {
		s.Sizing = plan.SizingTightest
		if o.adaptive(c.Discipline) {
			s.Sizing = plan.SizingAdaptive
		}
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
	Requeued    int     `json:"requeued"`
	Lost        float64 `json:"lost,omitempty"`
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
	Moved       int     `json:"moved,omitempty"`
	Active      float64 `json:"active_gpus,omitempty"` // the mean number of GPUs on which a job runs

	Met    int     `json:"deadlines_met,omitempty"`
	Missed int     `json:"deadlines_missed,omitempty"`
	Others float64 `json:"others_mean_wait,omitempty"` // the mean wait of the jobs without deadlines

	words    string // Layouts as text for readers; only for the static policy
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
		Switched:    r.Switched,
		Moved:       r.Moved,
		Active:      r.Active,
		Met:         r.Met,
		Missed:      r.Missed,
		Others:      r.Others.Mean(),
	}
}

// reality is the name of the row that shows the jobs' actual waiting times and no other figures.
const reality = "(as it was)"

// theoretical is the name of a policy that no site can use in practice, because it moves jobs at no cost.
const theoretical = "moved"

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
	if s.Sizing != "" {
		setting += ", sizing " + s.Sizing
	}
	if s.Create+s.Destroy > 0 {
		setting += fmt.Sprintf(", %v s to create and %v s to destroy an instance", s.Create, s.Destroy)
	}
	if s.Full != nil {
		setting += fmt.Sprintf(", full GPUs, %v s to switch the MIG mode", s.Full.Switch)
	}
	if s.Full != nil && s.Full.Share > 0 && s.Full.Share < 1 {
		setting += fmt.Sprintf(", at most %v of the GPUs full while jobs wait for slices", s.Full.Share)
	}
	if s.Memory != nil {
		setting += fmt.Sprintf(", memory predicted with an error of %v and a margin of %v",
			s.Memory.Error, s.Memory.Margin)
	}
	if s.Deadlines != "" {
		setting += ", deadlines: " + s.Deadlines
	}
	if s.Moves != "" {
		setting += fmt.Sprintf(", moves %s at a cost of %s", s.Moves, s.MoveCost)
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
		const several = "assumed whole GPUs for %s with usage recorded only as a sum over several GPUs"
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
		Slower:  s.slower,
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
			Reference:   r.Policy == reality || r.Policy == theoretical,
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
			Turnaround:  r.Turnaround,
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
