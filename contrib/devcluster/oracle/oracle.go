package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Run is the record of a run. All times are in nanoseconds of CLOCK_REALTIME.
type Run struct {
	Nodes []Node
	// Starts contains one element per node for each run of a job (see Account).
	Starts []Start
	// Submits maps batch jobs to their submission times.
	Submits map[uint32]int64
	// Sets lists the changes to GRES counts that slurmctld logged.
	Sets []Set
	// Snapshots lists the outputs of `scontrol show node` that were recorded during the run.
	Snapshots []Snapshot
	// Seen lists the UUIDs that the jobs found in CUDA_VISIBLE_DEVICES.
	Seen []Seen
	// Files lists the owners and modes of the GPUs' device files, as found by the jobs.
	Files []File
}

// Node is the part of the record that concerns one node.
type Node struct {
	Name  string
	Model string // the name of a GPU model in models.txt
	GPUs  int
	Full  bool // true if the GPUs can be full GPUs
	Journal
	Hardware
	// Final lists the instances in the agent's status after all jobs had ended. If Final is nil, the instances are
	// not checked.
	Final []Final
}

// Final describes an instance that `caelum status` shows at the end of the run.
type Final struct {
	GPU            int
	Profile, State string
	Start          int // units
}

// Start describes how slurmctld started a job on a node.
type Start struct {
	Job      uint32
	Node     string
	At       int64
	End      int64 // the time at which the run entered COMPLETING, rounded down to the second
	State    string
	Requeued bool           // true if the job has been run before
	Profiles map[string]int // the allocated gres/mig on the node, by type
	// Sized is true if job_submit.lua chose the profile, in which case the agent may lease a larger slice.
	Sized bool
}

// Set describes a change to a node's GRES in slurmctld's log.
type Set struct {
	Node, Gres string
	At         int64
}

// Snapshot is a node's state in slurmctld at some time between From and To.
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

// Finding describes a violation of a rule.
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

// Report is the result of Check. A run passes if Findings is empty and the counts show that the run contained enough
// events.
type Report struct {
	Writes, Lowered, Raised int
	Snapshots, Shut         int // Shut counts the snapshots of nodes on which slurmctld did not start jobs
	Starts, Leases, Refused int // Refused counts the runs that ended before their prologs requested leases
	Larger                  int // the number of runs whose slice is larger than the allocated one
	Created, Destroyed      int
	Processes, Seen         int
	Switches, Files         int // numbers of MIG mode changes and of device files checked
	// Waits is the sum, over all writes, of the number of runs that slurmctld had started but that had not yet been
	// granted a lease.
	Waits    int
	GaveUp   int // the number of passes that did not raise counts because jobs kept starting
	Findings []Finding
}

func (r *Report) add(rule, node string, at int64, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{rule, node, at, fmt.Sprintf(format, args...)})
}

// Rules returns the names of the violated rules, sorted and without duplicates.
func (r *Report) Rules() []string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Rule)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String returns the report as human-readable text.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"writes %d (lowered %d, raised %d), snapshots %d (%d while slurmctld could start no job on the node)\n",
		r.Writes,
		r.Lowered,
		r.Raised,
		r.Snapshots,
		r.Shut,
	)
	fmt.Fprintf(
		&b,
		"starts %d, slices leased %d (%d larger than allocated), instances created %d and destroyed %d, runs that "+
			"ended before their prologs requested leases %d\n",
		r.Starts,
		r.Leases,
		r.Larger,
		r.Created,
		r.Destroyed,
		r.Refused,
	)
	fmt.Fprintf(
		&b,
		"started runs without a lease, summed over all writes %d; passes that gave up %d; processes %d, devices "+
			"visible to jobs %d\n",
		r.Waits,
		r.GaveUp,
		r.Processes,
		r.Seen,
	)
	fmt.Fprintf(&b, "switches of the MIG mode %d, device files checked %d\n", r.Switches, r.Files)
	fmt.Fprintf(&b, "findings %d\n", len(r.Findings))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

// Check applies all rules to a run. It returns an error only for an unknown GPU model.
func Check(run Run) (*Report, error) {
	r := &Report{Seen: len(run.Seen), Starts: len(run.Starts)}
	for _, n := range run.Nodes {
		gpus, err := NewGPUs(n.Model, n.GPUs, n.Full)
		if err != nil {
			return nil, err
		}
		n.Hardware = n.Hardware.withSizes(gpus.grid)
		j := check{Report: r, run: &run, node: n, gpus: gpus}
		j.writes()
		j.logged()
		j.excesses()
		j.snapshots()
		j.carved()
		j.heldTwice()
		j.processes()
		j.switches()
		j.files()
		j.accounted()
	}
	return r, nil
}
