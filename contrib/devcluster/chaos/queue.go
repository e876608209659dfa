package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"caelum/contrib/devcluster/oracle"
)

// queue holds the jobs and nodes in slurmctld at a given time.
type queue struct {
	jobs  []queued
	nodes map[string]oracle.Snapshot
}

// queued is slurmctld's record of a job.
type queued struct {
	id, name, state, reason string
	raw                     string // the job id; for an array task, the task's own id
	priority                int
	nodes                   int
	required                string // the node that the job requests, or empty if it requests none
	exclusive               bool
	wants                   map[string]int // slices per node
	comment                 string         // AdminComment
	dependency              string
	eligible                string
	het                     string // id of the first component of the het job
	hetSet                  string
	on                      []string // the nodes on which the job is running
	started                 time.Time
}

// readQueue returns the jobs and nodes according to slurmctld.
func (c *campaign) readQueue() (queue, error) {
	out, stderr, err := c.cluster.Exec(
		c.ctx,
		"root",
		"bash",
		"-c",
		`scontrol -o show job && echo "look 0" && scontrol -o -d show node && echo "done 0"`,
	)
	if err != nil {
		return queue{}, fmt.Errorf("couldn't read the queue: %w: %s", err, lastLine(stderr))
	}
	return parseQueue(out)
}

func parseQueue(text string) (q queue, err error) {
	jobs, nodes, _ := strings.Cut(text, "look 0\n")
	for line := range strings.Lines(jobs) {
		if strings.HasPrefix(line, "JobId=") {
			q.jobs = append(q.jobs, parseJob(line))
		}
	}
	snapshots, err := oracle.ReadSnapshots(strings.NewReader("look 0\n" + nodes))
	q.nodes = map[string]oracle.Snapshot{}
	for _, l := range snapshots {
		q.nodes[l.Node] = l
	}
	return q, err
}

var wanted = regexp.MustCompile(`mig:([^,:]+):(\d+)`)

func parseJob(line string) queued {
	field := func(key string) string {
		_, rest, _ := strings.Cut(line, " "+key+"=")
		value, _, _ := strings.Cut(rest, " ")
		return strings.TrimSpace(value)
	}
	j := queued{
		name:       field("JobName"),
		state:      field("JobState"),
		reason:     field("Reason"),
		required:   field("ReqNodeList"),
		dependency: field("Dependency"),
		eligible:   field("EligibleTime"),
		het:        field("HetJobId"),
		hetSet:     field("HetJobIdSet"),
		wants:      map[string]int{},
	}
	j.id, _, _ = strings.Cut(strings.TrimPrefix(line, "JobId="), " ")
	j.raw = j.id
	// For an array task, scancel needs the index of the task, unless the record contains several tasks.
	if _, err := strconv.Atoi(field("ArrayTaskId")); err == nil {
		j.id = field("ArrayJobId") + "_" + field("ArrayTaskId")
	}
	j.priority, _ = strconv.Atoi(field("Priority"))
	j.on = expand(field("NodeList"))
	j.started, _ = time.ParseInLocation("2006-01-02T15:04:05", field("StartTime"), time.Local)
	nodes, _, _ := strings.Cut(field("NumNodes"), "-")
	j.nodes, _ = strconv.Atoi(nodes)
	j.exclusive = field("OverSubscribe") == "NO"
	_, comment, _ := strings.Cut(line, " AdminComment=")
	j.comment, _, _ = strings.Cut(comment, " StdErr=")
	if j.required == "(null)" {
		j.required = ""
	}
	for _, m := range wanted.FindAllStringSubmatch(field("TresPerNode"), -1) {
		n, _ := strconv.Atoi(m[2])
		j.wants[m[1]] += n
	}
	return j
}

// live returns the jobs that have not ended.
func (q queue) live() []queued {
	return slices.DeleteFunc(slices.Clone(q.jobs), func(j queued) bool {
		return !slices.Contains(
			[]string{
				"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
				"STAGE_OUT", "SIGNALING",
			},
			j.state,
		)
	})
}

// never reports whether a pending job can never start during the campaign.
func (q queue) never(j queued) bool {
	if j.state != "PENDING" {
		return false
	}
	held := j.priority == 0 && !strings.Contains(j.comment, "caelum:held")
	after := afterJob.FindAllStringSubmatch(j.dependency, -1)
	return held || q.incomplete(j) || j.exclusive && q.miscounted() || slices.ContainsFunc(q.jobs, func(o queued) bool {
		array, _, _ := strings.Cut(o.id, "_")
		return slices.ContainsFunc(after, func(id []string) bool { return o.raw == id[1] || array == id[1] }) &&
			q.never(o)
	})
}

// miscounted reports whether, on every node that is up, slurmctld counts slices as used even though no job holds them.
// No --exclusive job can then start before slurmctld is restarted.
func (q queue) miscounted() bool {
	nodes := 0
	for _, l := range q.nodes {
		switch {
		case !up(l):
		case !idle(l) || !counted(l):
			return false
		default:
			nodes++
		}
	}
	return nodes > 0
}

// afterJob matches the job ids in slurmctld's Dependency field, such as afterany:37(unfulfilled).
var afterJob = regexp.MustCompile(`:(\d+)`)

// incomplete reports whether a component of j's het job has ended or is missing. The het job can then never start,
// because slurmctld starts all components together.
func (q queue) incomplete(j queued) bool {
	if j.hetSet == "" || j.state != "PENDING" {
		return false
	}
	first, last := bounds(j.hetSet)
	for id := first; id <= last; id++ {
		if !slices.ContainsFunc(
			q.jobs,
			func(o queued) bool { return o.raw == strconv.Itoa(id) && o.state == "PENDING" },
		) {
			return true
		}
	}
	return false
}

// bounds parses the ids of a het job's components, which slurmctld prints as "5-6".
func bounds(set string) (first, last int) {
	a, b, ranged := strings.Cut(set, "-")
	first, _ = strconv.Atoi(a)
	if last, _ = strconv.Atoi(b); !ranged {
		last = first
	}
	return first, last
}

// runnable reports whether a pending job is waiting only for slices, according to slurmctld's record.
func (q queue) runnable(j queued, now time.Time) bool {
	if j.state != "PENDING" || len(j.wants) == 0 || q.incomplete(j) {
		return false
	}
	if eligible, err := time.ParseInLocation("2006-01-02T15:04:05", j.eligible, time.Local); err != nil ||
		eligible.After(now) {
		return false
	}
	if j.dependency != "(null)" && j.dependency != "" {
		return false
	}
	if j.priority == 0 {
		return strings.Contains(j.comment, "caelum:held")
	}
	switch j.reason {
	case "Licenses", "JobArrayTaskLimit", "Dependency", "BeginTime", "Cleaning":
		return false
	}
	return !strings.HasPrefix(j.reason, "Assoc") && !strings.HasPrefix(j.reason, "QOS")
}

func names(jobs []queued) string {
	var all []string
	for _, j := range jobs {
		all = append(all, fmt.Sprintf("%s %s (%s, %s)", j.id, j.name, j.state, j.reason))
	}
	return strings.Join(all, "; ")
}
