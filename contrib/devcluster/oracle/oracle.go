// Package oracle says, after a run, whether the agents ever published what could not have been carved.
//
// It reads what was left behind by parties that know nothing of each other: the agents' logs, the emulated GPUs' own
// log, slurmctld's log, slurmdbd's accounting, looks at slurmctld taken from outside, and what the jobs saw. It shares
// no code with what it judges: profiles are intervals from the GPU model table, packing is trying everything. It never
// runs anything; package e2e_oracle's test does.
//
// # What it cannot see
//
// A job that started between an agent's read of slurmctld and the write that builds on it is taken for one that the
// write did not know: its slice is then among those that the write offers. The looks have no such gap, since total and
// used come from slurmctld in one answer. Whole-node allocations (--exclusive) are given every type and want only some:
// leave them out of a run that is to be judged.
package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Run is what a run left behind. All times are nanoseconds of CLOCK_REALTIME.
type Run struct {
	Nodes []Node
	// Starts are slurmctld's allocations, one for each node of each run of a job; see Account.
	Starts []Start
	// Submits are when batch jobs were submitted.
	Submits map[uint32]int64
	// Sets are the changes of GRES counts that slurmctld logged.
	Sets []Set
	// Looks are the answers of `scontrol show node` taken during the run.
	Looks []Snapshot
	// Seen is what the jobs found in CUDA_VISIBLE_DEVICES.
	Seen []Seen
}

// Node is one node.
type Node struct {
	Name  string
	Board string // a name of models.txt
	GPUs  int
	Journal
	Hardware
	// Final are the instances that the agent answered for when every job was over; nil leaves the check out.
	Final []Final
}

// Final is an instance as `caelum status` shows it at the end.
type Final struct {
	GPU            int
	Profile, State string
	Start          int // units
}

// Start is slurmctld's start of a job on a node.
type Start struct {
	Job      uint32
	Node     string
	At       int64
	End      int64 // when the run entered COMPLETING, rounded down to the second
	State    string
	Requeued bool           // it is not the job's first
	Profiles map[string]int // what was allocated of gres/mig on this node
}

// Set is a change of a node's GRES in slurmctld's log.
type Set struct {
	Node, Gres string
	At         int64
}

// Look is a node as slurmctld showed it at some moment from From to To.
type Snapshot struct {
	Node        string
	From, To    int64
	States      []string
	Total, Used map[string]int
}

// Seen is a MIG UUID that a job found in its environment on a node.
type Seen struct {
	Job  uint32
	Node string
	UUID string
}

// Finding is something that must not be.
type Finding struct {
	Rule, Node string
	At         int64
	Text       string
}

func (f Finding) String() string {
	at := "-"
	if f.At != 0 {
		at = time.Unix(0, f.At).UTC().Format("15:04:05.000000")
	}
	return fmt.Sprintf("%s %s %s: %s", f.Rule, f.Node, at, f.Text)
}

// Report is the verdict. A run is good if Findings is empty and the counts say that there was something to judge.
type Report struct {
	Writes, Lowered, Raised int
	Looks, Shut             int // Shut: on a node that starts nothing just then
	Starts, Leases, Refused int // Refused: runs that ended before their prolog had asked
	Created, Destroyed      int
	Processes, Seen         int
	// runs that slurmctld had started and the agent had not leased yet, summed over the writes
	Waits    int
	GaveUp   int // passes that stayed lowered because jobs kept starting
	Findings []Finding
}

func (r *Report) add(rule, node string, at int64, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{rule, node, at, fmt.Sprintf(format, args...)})
}

// Rules are the rules that were broken, each once.
func (r *Report) Rules() []string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Rule)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"writes %d (lowered %d, raised %d), looks %d (%d of them at a node that starts nothing)\n",
		r.Writes,
		r.Lowered,
		r.Raised,
		r.Looks,
		r.Shut,
	)
	fmt.Fprintf(
		&b,
		"starts %d, slices leased %d, instances created %d and destroyed %d, runs that ended before their prolog had asked %d\n",
		r.Starts,
		r.Leases,
		r.Created,
		r.Destroyed,
		r.Refused,
	)
	fmt.Fprintf(
		&b,
		"runs started and not yet leased, over all writes %d; passes that gave up %d; processes %d, devices seen by jobs %d\n",
		r.Waits,
		r.GaveUp,
		r.Processes,
		r.Seen,
	)
	fmt.Fprintf(&b, "findings %d\n", len(r.Findings))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

// Check judges a run. The error says that the run cannot be judged: a GPU model that nobody knows.
func Check(run Run) (*Report, error) {
	r := &Report{Seen: len(run.Seen), Starts: len(run.Starts)}
	for _, n := range run.Nodes {
		gpus, err := NewGPUs(n.Board, n.GPUs)
		if err != nil {
			return nil, err
		}
		j := judge{Report: r, run: &run, node: n, gpus: gpus}
		j.writes()
		j.logged()
		j.snapshots()
		j.carved()
		j.heldTwice()
		j.processes()
		j.accounted()
	}
	return r, nil
}
