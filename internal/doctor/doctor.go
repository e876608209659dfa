// Package doctor finds what is wrong with a node's part in Caelum: in Slurm's configuration, in what slurmctld has of
// the node, in the plugin's files, in the agent and in the device files of slices; and, on slurmctld's host, in the
// decision table.
//
// Reading (Read) and judging (Examine) are apart: every check is a function over values. Nothing is changed, and a
// check that could not be made is never reported as passed.
package doctor

import (
	"slices"
	"strings"
	"time"

	"caelum/internal/api"
	"caelum/internal/slurm"
)

// Severity is how bad a finding is: OK, Info (to know, nothing to do), Warning (it works, but) or Error.
type Severity string

// The severities.
const (
	OK      Severity = "ok"
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is what one check found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	// Next is what to do about it; empty for OK and Info.
	Next string `json:"next,omitempty"`
}

func fault(text, next string) Finding   { return Finding{Severity: Error, Text: text, Next: next} }
func concern(text, next string) Finding { return Finding{Severity: Warning, Text: text, Next: next} }
func note(text string) Finding          { return Finding{Severity: Info, Text: text} }

// one is the finding of a check that finds no more than one thing, if it is there.
func one(f Finding, there bool) []Finding {
	if !there {
		return nil
	}
	return []Finding{f}
}

// Source is where facts come from.
type Source string

// The sources, in the order in which the lack of one explains the lack of the next.
const (
	Slurmctld Source = "slurmctld"
	OwnNode   Source = "node"
	Agent     Source = "agent"
	Plugstack Source = "plugstack.conf"
	Devices   Source = "device files"
	Module    Source = "driver"
	Decisions Source = "decision table"
	Slurmdbd  Source = "slurmdbd"
)

var sources = []Source{Slurmctld, OwnNode, Agent, Plugstack, Devices, Module, Decisions, Slurmdbd}

// ofNode are the sources that slurmctld's host does not have.
var ofNode = []Source{OwnNode, Agent, Plugstack, Devices, Module}

// Facts are what Examine judges.
type Facts struct {
	// Missing says why a source could not be read; what it would have told is then zero below.
	Missing map[Source]Finding

	// Controller is set on slurmctld's host: what only GPU nodes have is then not looked at.
	Controller bool

	// RunDir is the agent's directory, which the plugin must be told where it is not the default.
	RunDir string

	// From slurmctld. Asked and Answered are this host's clock before and after it told Config.
	Config          slurm.Config
	Asked, Answered time.Time
	Nodes           []slurm.Node
	Partitions      []slurm.Partition
	Node            slurm.Node

	Agent  api.Status
	Plugin Plugin
	Files  []CapFile

	// Confinement is this host's.
	Confinement Confinement

	Driver Driver
	Table  Table
	Wake   Wake

	// Owners says which of root's paths others can change.
	Owners Files
	// Whole are the device files of GPUs that the agent does not manage.
	Whole []WholeGPU

	// Limits are the limits on gres/gpu that slurmdbd has.
	Limits []string
}

// check looks at facts of some sources. Sound is what is said when it finds nothing; empty for a check that only
// informs.
type check struct {
	name  string
	sound string
	needs []Source
	run   func(*Facts) []Finding
}

func checks() []check {
	ctld, node := []Source{Slurmctld}, []Source{Slurmctld, OwnNode}
	return []check{
		{"agent", "it answers, and what it offers stands in slurmctld", []Source{Agent}, publishing},
		{"gpus", "the agent manages every GPU", []Source{Agent}, gpus},
		{"instances", "none is stuck or foreign", []Source{Agent}, instances},
		{"device files", "each slice is open to its job's user only", []Source{Agent, Devices}, deviceFiles},
		{"prolog", "PrologFlags has Alloc and not RunInJob", ctld, prologFlags},
		{"batch start", "BatchStartTimeout is longer than a prolog may wait", ctld, batchStart},
		{"select", "SelectType can give out parts of a node", ctld, selectType},
		{"backfill", "SchedulerParameters has bf_continue", ctld, backfill},
		{"het jobs", "SchedulerParameters has bf_hetjob_prio=min", ctld, hetPriority},
		{"gres types", "GresTypes has gpu and mig", ctld, gresTypes},
		{"accounting", "AccountingStorageTRES has gres/mig", ctld, accounting},
		{"clock", "slurmctld's and this host's agree", ctld, clock},
		{"node", "slurmctld can use it", node, nodeState},
		{"closed", "gres/mig:closed is there", node, closed},
		{"total", "gres/mig is slurm.conf's, and four times the slots or more", node, total},
		{"used", "slurmctld counts no slice as used that no job has", append(node, Agent), excess},
		{"slots", "gres/gpu is what the GPUs can hold", append(node, Agent), slots},
		{"partitions", "none gives out whole nodes only", node, exclusive},
		{"catalogue", "its nodes are down, as they should be, and share a partition with this node", node, catalogue},
		{"features", "the catalogue has this node's features, and no others", node, features},
		{"profiles", "the driver's are slurm.conf's", append(node, Agent), profiles},
		{
			"decision table",
			"job_submit.lua can read it, and it agrees with slurm.conf",
			[]Source{Slurmctld, Decisions},
			decisionTable,
		},
		{"plugin", "plugstack.conf requires it, and it fits this slurmd", []Source{Slurmctld, Plugstack}, plugin},
		{"isolation", "no other user and no other job can open a job's slice", node, isolation},
		{"driver", "it leaves device files to others, and those that clients need are there", []Source{Module}, driver},
		{"wake key", "only its daemon can read it, or there is no wake port", ctld, wakeKey},
		{
			"whole GPUs",
			"no job can open a GPU that Slurm did not give it",
			[]Source{Slurmctld, Agent, Devices},
			wholeGPUs,
		},
		{"owners", "only root can change what root's processes read, load and write", nil, owners},
		{"memory", "the driver scrubs GPU memory that is freed", []Source{Module}, scrubbing},
		{"limits", "", []Source{Slurmctld, Slurmdbd}, limits},
	}
}

// Examine judges the facts, in a fixed order: first what could not be read, then check by check.
func Examine(f *Facts) []Finding {
	var found []Finding
	unmade := map[Source][]string{}
	var judged []Finding
	for _, c := range checks() {
		if f.Controller && slices.ContainsFunc(c.needs, func(s Source) bool { return slices.Contains(ofNode, s) }) {
			continue
		}
		if s, lacks := f.lacks(c.needs); lacks {
			unmade[s] = append(unmade[s], c.name)
			continue
		}
		faults := c.run(f)
		if len(faults) == 0 && c.sound != "" {
			faults = []Finding{{Severity: OK, Text: c.sound}}
		}
		for _, finding := range faults {
			finding.Check = c.name
			judged = append(judged, finding)
		}
	}
	for _, s := range sources {
		gap, missing := f.Missing[s]
		if !missing || s == OwnNode && f.without(Slurmctld) || f.Controller && slices.Contains(ofNode, s) {
			continue
		}
		gap.Check = string(s)
		if len(unmade[s]) > 0 {
			gap.Text += "; not checked: " + strings.Join(unmade[s], ", ")
		}
		found = append(found, gap)
	}
	return append(found, judged...)
}

func (f *Facts) without(s Source) bool {
	_, missing := f.Missing[s]
	return missing
}

// lacks names the first of the sources that could not be read.
func (f *Facts) lacks(needs []Source) (Source, bool) {
	for _, s := range needs {
		if f.without(s) {
			return s, true
		}
	}
	return "", false
}

// Count is how many findings have the severity.
func Count(list []Finding, s Severity) int {
	n := 0
	for _, f := range list {
		if f.Severity == s {
			n++
		}
	}
	return n
}
