package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// fault is a kind of fault.
type fault struct {
	name, does string
	// part lists the parts that the fault affects, separated by spaces. The parts of the cluster are slurmctld,
	// slurmdbd, munged, watcher and watcher2; the parts of a node are agent, slurmd, node, gpu, ledger and leases. A
	// part is affected by at most one fault at a time.
	part string
	// begin injects the fault. end repairs the damage, and is nil for faults that do not need a repair. The campaign
	// calls end after a random time between shortest and longest, in seconds.
	begin, end        func(*breaking) error
	shortest, longest float64
	fractions         bool // it affects only the node with fractions
	// ends lists the final states in sacct that the fault explains. A fault on a node explains only the ends of runs on
	// that node.
	ends []string
}

// breaking is a fault that has begun.
type breaking struct {
	*campaign
	fault
	node     string // empty for a part that is not on a node
	rng      *rand.Rand
	from, to time.Time // to is zero while the fault lasts
	failed   bool      // end returned an error, and mend must call it again
	note     string    // data for end, for example an instance or the name of an error
}

// perNode lists the parts that exist on each node.
var perNode = []string{"agent", "slurmd", "node", "gpu", "ledger", "leases"}

// parts returns the parts in which no other fault can begin while b lasts.
func (b *breaking) parts() (all []string) {
	for _, part := range strings.Fields(b.part) {
		if b.node != "" {
			part += "-" + b.node
		}
		all = append(all, part)
	}
	return all
}

// perNode reports whether the fault affects only one node.
func (f fault) perNode() bool { return slices.Contains(perNode, strings.Fields(f.part)[0]) }

// faults lists the kinds of faults. Do not reorder them: the order affects which faults a given seed generates.
var faults = slices.Concat(daemonFaults, adminFaults, diskFaults, hardwareFaults)

// allKinds returns the names of all kinds of faults, jobs and user actions.
func allKinds() (all []string) {
	for _, f := range faults {
		all = append(all, f.name)
	}
	for _, k := range jobKinds {
		all = append(all, k.name)
	}
	for _, k := range userKinds {
		all = append(all, k.name)
	}
	return all
}

func printKinds(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "FAULT\tEFFECT")
	for _, f := range faults {
		fmt.Fprintf(w, "%s\t%s\n", f.name, f.does)
	}
	fmt.Fprintln(w, "\t\nJOB\tDESCRIPTION")
	for _, k := range jobKinds {
		fmt.Fprintf(w, "%s\t%s\n", k.name, k.does)
	}
	for _, k := range userKinds {
		fmt.Fprintf(w, "%s\t%s\n", k.name, k.does)
	}
}

// unit returns the devcluster's name for the affected daemon.
func (b *breaking) unit() string {
	if b.node == "" {
		return b.part
	}
	return b.part + "-" + b.node
}

func kill(b *breaking) error    { return b.cluster.KillUnit(b.unit(), "KILL") }
func stop(b *breaking) error    { return b.cluster.KillUnit(b.unit(), "STOP") }
func resume(b *breaking) error  { return b.cluster.KillUnit(b.unit(), "CONT") }
func restart(b *breaking) error { return b.cluster.RestartUnit(b.unit()) }
func start(b *breaking) error   { return b.startUnit(b.unit()) }
func end(b *breaking) error     { return b.cluster.StopUnit(b.unit()) }

// startUnit makes up to five attempts to start a daemon. An attempt can fail because slurmd cannot reach slurmctld or
// because a killed daemon's keeper is still running.
func (c *campaign) startUnit(unit string) (err error) {
	for range 5 {
		if err = c.cluster.StartUnit(unit); err == nil || strings.Contains(err.Error(), "is already running") {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

const slurmctldKill = "slurmctld-kill"

// daemonFaults lists the faults that kill, stop or restart daemons. A fault in one of Caelum's own daemons never
// explains the end of a job.
var daemonFaults = []fault{
	{
		name:  "agent-kill",
		does:  "sends SIGKILL to an agent, which its keeper then restarts",
		part:  "agent",
		begin: kill,
	},
	{
		name:     "agent-stop",
		does:     "stops an agent with SIGSTOP for 1 to 12 s",
		part:     "agent",
		begin:    stop,
		end:      resume,
		shortest: 1,
		longest:  12,
	},
	{name: "agent-restart", does: "restarts an agent", part: "agent", begin: restart},
	{
		name:    "slurmd-kill",
		does:    "sends SIGKILL to a slurmd and starts a new one after 0 to 5 s",
		part:    "slurmd",
		begin:   kill,
		end:     start,
		longest: 5,
		ends:    []string{"REQUEUED", "NODE_FAIL", "FAILED"},
	},
	{
		name:     "slurmd-stop",
		does:     "stops a slurmd with SIGSTOP for 1 to 8 s",
		part:     "slurmd",
		begin:    stop,
		end:      resume,
		shortest: 1,
		longest:  8,
	},
	{
		name:  "slurmd-restart",
		does:  "restarts a slurmd",
		part:  "slurmd",
		begin: restart,
		ends:  []string{"REQUEUED", "NODE_FAIL", "FAILED"},
	},
	{
		name:    slurmctldKill,
		does:    "sends SIGKILL to slurmctld and starts a new one after 0 to 6 s",
		part:    "slurmctld",
		begin:   kill,
		end:     start,
		longest: 6,
		ends:    []string{"REQUEUED", "NODE_FAIL", "FAILED", "CANCELLED"},
	},
	{
		name:     "slurmctld-stop",
		does:     "stops slurmctld with SIGSTOP for 1 to 8 s",
		part:     "slurmctld",
		begin:    stop,
		end:      resume,
		shortest: 1,
		longest:  8,
	},
	{
		name:  "slurmctld-restart",
		does:  "slurmctld restarted",
		part:  "slurmctld",
		begin: restart,
		ends:  []string{"REQUEUED", "CANCELLED"},
	},
	{
		name:     "slurmdbd-away",
		does:     "stops slurmdbd for 1 to 5 s",
		part:     "slurmdbd",
		begin:    end,
		end:      start,
		shortest: 1,
		longest:  5,
	},
	{name: "munged-restart", does: "munged restarted", part: "munged", begin: restart},
	{
		name:  "watcher-kill",
		does:  "sends SIGKILL to the watcher, which its keeper then restarts",
		part:  "watcher",
		begin: kill,
	},
	{
		name:     "watcher-stop",
		does:     "stops the watcher with SIGSTOP for 2 to 10 s",
		part:     "watcher",
		begin:    stop,
		end:      resume,
		shortest: 2,
		longest:  10,
	},
	{
		name:     "watcher-away",
		does:     "stops the watcher with SIGSTOP for 16 to 25 s, after which the other watcher may plan",
		part:     "watcher",
		begin:    stop,
		end:      resume,
		shortest: 16,
		longest:  25,
	},
	{
		name:  "watcher2-kill",
		does:  "sends SIGKILL to the watcher on the backup controller's host",
		part:  "watcher2",
		begin: kill,
	},
	{
		name:     "watcher2-stop",
		does:     "stops the watcher on the backup controller's host with SIGSTOP for 2 to 25 s",
		part:     "watcher2",
		begin:    stop,
		end:      resume,
		shortest: 2,
		longest:  25,
	},
	{
		name:  "slurmd-and-agent",
		does:  "restarts a node's slurmd and agent at the same time",
		part:  "agent slurmd ledger",
		begin: restartBoth,
		ends:  []string{"REQUEUED", "NODE_FAIL", "FAILED"},
	},
}

func restartBoth(b *breaking) error {
	done := make(chan error)
	go func() { done <- b.cluster.RestartUnit("agent-" + b.node) }()
	err := b.cluster.RestartUnit("slurmd-" + b.node)
	if err2 := <-done; err == nil {
		err = err2
	}
	return err
}

// adminFaults lists the faults that are actions of an administrator.
var adminFaults = []fault{
	{
		name:  "reconfigure",
		does:  "scontrol reconfigure",
		part:  "slurmctld",
		ends:  []string{"REQUEUED"},
		begin: func(b *breaking) error { return b.root("", "scontrol", "reconfigure") },
	},
	{name: "drain", does: "drains a node for 2 to 15 s", part: "node", shortest: 2, longest: 15,
		begin: func(b *breaking) error { return b.nodeState("drain") },
		end:   func(b *breaking) error { return b.nodeState("resume") }},
	{name: "down", does: "sets a node to DOWN for 1 to 6 s, which ends the node's jobs", part: "node",
		shortest: 1, longest: 6,
		begin: func(b *breaking) error { return b.nodeState("down") },
		end:   func(b *breaking) error { return b.nodeState("resume") },
		ends:  []string{"REQUEUED", "NODE_FAIL", "CANCELLED", "FAILED"}},
}

func (b *breaking) nodeState(state string) error {
	err := b.root("", "scontrol", "update", "nodename="+b.node, "state="+state, "reason=chaos")
	if state == "resume" && err != nil && strings.Contains(err.Error(), "Invalid node state") {
		return nil // slurmd's registration has already resumed the DOWN node (ReturnToService=2)
	}
	return err
}
