package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/internal/core/tags"
)

// jobRun is one run of a job according to sacct.
type jobRun struct {
	id, name, state, exit string
	comment               string    // AdminComment
	start, end            time.Time // start is the zero time if the run never started
	nodes                 []string
	noGPU                 bool // the job requested GPUs but was not allocated any
}

// sacctFields holds the sacct fields that parseRuns reads.
const sacctFields = "JobIDRaw,JobName,State,ExitCode,Start,End,NodeList,ReqTRES,AllocTRES,AdminComment"

func parseRuns(text string) (all []jobRun) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 10 {
			continue
		}
		r := jobRun{id: f[0], name: f[1], exit: f[3], nodes: expand(f[6]), comment: f[9],
			noGPU: f[4] != "Unknown" && strings.Contains(f[7], "gres/gpu=") && f[8] != "" &&
				!strings.Contains(f[8], "gres/gpu=")}
		r.state, _, _ = strings.Cut(f[2], " ") // CANCELLED by UID
		if at, err := strconv.ParseInt(f[4], 10, 64); err == nil {
			r.start = time.Unix(at, 0)
		}
		if at, err := strconv.ParseInt(f[5], 10, 64); err == nil {
			r.end = time.Unix(at, 0)
		}
		all = append(all, r)
	}
	return all
}

// expand expands host lists such as n1 and n[1-2], the only two forms that sacct uses for a devcluster's nodes.
func expand(list string) (all []string) {
	list = strings.NewReplacer("n[", "", "]", "", "n", "").Replace(list)
	for _, part := range strings.Split(list, ",") {
		if first, last := bounds(part); first > 0 {
			for n := first; n <= last; n++ {
				all = append(all, fmt.Sprint("n", n))
			}
		}
	}
	return all
}

// around extends a run's interval at both ends. A fault within the longer interval may have affected the run, because
// slurmctld detects the loss of a launch or a node only after a delay, and because sacct prints times in whole seconds.
const around = 12 * time.Second

// A run that fails within stillborn of its start may have failed because of a fault that ended no more than aftermath
// before the run started: if a node or slurmd fails during a run, slurmd 22.05.8 may skip the prolog of the job's next
// run, and slurmctld 22.05.8 may not allocate any GRES to it.
const (
	stillborn = 2 * time.Second
	aftermath = 40 * time.Second
)

// judgeEnds checks, for all runs of the round's jobs in sacct, that there is an explanation for every final state other
// than COMPLETED.
func (c *campaign) judgeEnds(began time.Time) {
	var runs []jobRun
	for range 15 { // slurmdbd's records may be a few seconds old
		runs = parseRuns(
			c.tell(
				"", "env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-D", "-X", "-n", "-P", "-S", "now-1days", "-o",
				sacctFields,
			),
		)
		if !slices.ContainsFunc(runs, func(r jobRun) bool { return c.ofRound(r, began) && r.live() }) {
			break
		}
		sleep(c.ctx, time.Second)
	}
	for _, r := range runs {
		if !c.ofRound(r, began) {
			continue
		}
		r.nodes = c.sharedNodes(r, runs)
		c.counts.runs++
		c.counts.ends[r.state]++
		if r.live() {
			c.time.add("sacct still shows job %s (%s) as %s", r.id, r.name, r.state)
			continue
		}
		if why := c.explain(r); why == "" && r.state != "COMPLETED" {
			c.found.add(
				&c.time,
				ruleEnds,
				"job %s (%s) on %s from %s to %s is %s, exit code %s: %s",
				r.id,
				r.name,
				strings.Join(r.nodes, ","),
				clock(r.start),
				clock(r.end),
				r.state,
				r.exit,
				c.output(r),
			)
		} else if r.state != "COMPLETED" {
			c.time.add("job %s (%s) is %s: %s", r.id, r.name, r.state, why)
		}
	}
}

// launchedBefore reports whether slurmctld was killed between two launches with the same job id on one of the run's
// nodes. When slurmctld 22.05.8 is killed, it may forget the earlier run and reassign its job id.
func (c *campaign) launchedBefore(r jobRun) bool {
	for _, node := range r.nodes {
		log, err := c.cluster.Log("slurmd-" + node)
		if err != nil {
			continue
		}
		for _, at := range launches(log, r.id) {
			killed := func(b *breaking) bool { return b.name == slurmctldKill && b.from.After(at) }
			if at.Before(r.start) && slices.ContainsFunc(c.faultsIn(at, r.start.Add(time.Second)), killed) {
				return true
			}
		}
	}
	return false
}

// launches returns the times at which slurmd launched a batch script or a first step of the job, according to its log.
// Since Slurm 25.11, the log lines contain JobId= (_rpc_batch_job in req.c).
func launches(log, id string) (at []time.Time) {
	said := regexp.MustCompile(
		`(?m)^\[(\S+)\] (?:Launching batch (?:job |JobId=)` + id + ` for|launch task StepId=` + id + `\.0 )`,
	)
	for _, m := range said.FindAllStringSubmatch(log, -1) {
		if t, err := time.ParseInLocation("2006-01-02T15:04:05.000", m[1], time.Local); err == nil {
			at = append(at, t)
		}
	}
	return at
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("15:04:05")
}

func (r jobRun) live() bool {
	return slices.Contains(
		[]string{"PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING"},
		r.state,
	)
}

// ofRound reports whether a run belongs to the campaign and ended in the round that began at the given time.
func (c *campaign) ofRound(r jobRun, began time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ours := c.jobs[r.name]
	return ours && (r.end.IsZero() || r.end.After(began.Add(-time.Second)))
}

// explain returns the campaign's action that explains why a run ended, or an empty string if there is none.
func (c *campaign) explain(r jobRun) string {
	c.mu.Lock()
	j, causes := c.jobs[r.name], slices.Clone(c.causes[r.name])
	c.mu.Unlock()
	if why := requested(causes, r); why != "" {
		return why
	}
	if why := moved(r, j.kind); why != "" {
		return why
	}
	if r.noGPU && c.active("slurmctld", "", time.Time{}, r.start) {
		return "slurmctld had been restarted, and allocated no GRES to the job"
	}
	if (r.state == "FAILED" || r.state == "REQUEUED") && c.launchedBefore(r) {
		return "slurmctld was killed before it saved an earlier run with this id. slurmd still knew the earlier " +
			"run, and did not run the prolog or the job"
	}
	from := r.start
	if from.IsZero() {
		from = r.end
	}
	before := around
	if r.state == "FAILED" && !r.start.IsZero() && r.end.Sub(r.start) <= stillborn {
		before = aftermath
	}
	for _, b := range c.faultsIn(from.Add(-before), r.end.Add(around)) {
		here := b.node == "" || slices.Contains(r.nodes, b.node) || len(r.nodes) == 0
		daemon := slices.ContainsFunc(
			strings.Fields(b.part),
			func(p string) bool { return p == "slurmctld" || p == "slurmd" },
		)
		// An agent that was not running has no samples that show that the job ran out of memory.
		unseen := j.kind == "grows" && r.state == "FAILED" && strings.Contains(b.part, "agent")
		if here && (slices.Contains(b.ends, r.state) || j.interactive && daemon || unseen) {
			return strings.TrimSpace(fmt.Sprintf("fault %s %s at %s", b.name, b.node, clock(b.from)))
		}
	}
	return ""
}

// moved returns the reason if slurmctld, the watcher or an agent has stopped a run for another job or so that the job
// can grow, or an empty string.
func moved(r jobRun, kind string) string {
	by := tags.Value(r.comment, tags.Moved)
	switch {
	case r.state == "PREEMPTED":
		return "slurmctld preempted the job"
	case r.state != "REQUEUED" && r.state != "CANCELLED":
		return ""
	case tags.Value(r.comment, tags.Preempted) != "", by != "" && !strings.HasPrefix(by, "0:"):
		return "the watcher stopped the job for another"
	case r.state == "REQUEUED" && kind == "grows":
		return "the job grew"
	}
	return ""
}

// requested returns the request, by a user or the campaign, that explains why a run ended, or an empty string if there
// is none.
func requested(causes []cause, r jobRun) string {
	const late = 2 * time.Second // sacct prints times in whole seconds
	// If a user cancels a job during a requeue, slurmctld 22.05.8 changes the run's state to CANCELLED but keeps the
	// time of the requeue as its end time.
	requeued := slices.ContainsFunc(causes, func(c cause) bool {
		return c.end == "REQUEUED" && c.at.Sub(r.end).Abs() <= late
	})
	for _, one := range causes {
		// Users can requeue a finished job until slurmctld removes its record.
		anyTime := r.state == "REQUEUED" || r.state == "CANCELLED" && requeued
		if one.end == r.state && (anyTime || one.at.Before(r.end.Add(late))) {
			return one.why
		}
	}
	return ""
}

// sharedNodes returns the nodes whose faults can end a run. For a het job, these are the nodes of all its components,
// because when the first component ends, slurmctld ends the others.
func (c *campaign) sharedNodes(r jobRun, runs []jobRun) []string {
	c.mu.Lock()
	kind := c.jobs[r.name].kind
	c.mu.Unlock()
	nodes := slices.Clone(r.nodes)
	for _, other := range runs {
		if kind == "het" && other.name == r.name && other.end.Sub(r.end).Abs() <= 2*time.Second {
			nodes = append(nodes, other.nodes...)
		}
	}
	return nodes
}

// output returns the last lines of a batch job's output.
func (c *campaign) output(r jobRun) string {
	c.mu.Lock()
	user := c.jobs[r.name].user
	c.mu.Unlock()
	files, _ := filepath.Glob(filepath.Join(c.cluster.Dir, "home", user, "slurm-"+r.id+"*.out"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		return fmt.Sprintf("%q", string(text[max(0, len(text)-400):]))
	}
	return "no output"
}
