package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Node is a node as slurmctld has it.
type Node struct {
	Name string
	// RequestedAs is when slurmctld was asked: what happened before is in the answer.
	Asked time.Time
	// States is the base state and its flags: IDLE, MIXED, DOWN; DRAIN, COMPLETING, NOT_RESPONDING, INVALID_REG, ...
	States     []string
	Reason     string
	Partitions []string
	// Gres is what may be given out in all, GresUsed what is given out by slurmctld's reckoning. It forgets some of the
	// latter when it restarts.
	Gres, GresUsed []GRES
	// MIGTotal is the node's count of gres/mig by slurm.conf, from CfgTRES. `scontrol update` and slurmd's registration
	// do not change it (22.05.8). 0: unknown, because AccountingStorageTRES lacks gres/mig.
	MIGTotal int
	// Unregistered is true from a restart of slurmctld until slurmd has registered: slurmctld does not know the node's
	// device files yet, and a job that it starts there has gres/gpu without the numbers of its slots, so neither
	// SLURM_JOB_GPUS nor CUDA_VISIBLE_DEVICES (22.05.8: seen for 5 s). SlurmdStartTime is None then; in 22.05 GresUsed
	// also lacks its "(IDX:...)". From 23.02 on slurmctld saves the indices, so they prove nothing (24.11.5, 26.05.5).
	Unregistered              bool
	BootTime, SlurmdStartTime time.Time
	// Features are the active ones: slurmctld starts a job on them without booting the node.
	Features []string
	// Addr is NodeAddr: a name or an address.
	Addr string
	// CPUs is how many slurmctld gives out, CPUsFree how many of them it has not. 0: unknown.
	CPUs, CPUsFree int
	// Memory is how much memory slurmctld gives out, MemoryFree how much of it no job has, in MiB. Where memory is not
	// a consumable resource, no job has any. 0: unknown.
	Memory, MemoryFree int
	// TmpDisk is in MiB. Of sockets, cores and threads, 0: unknown.
	TmpDisk, Sockets, CoresPerSocket, ThreadsPerCore int
	// Reservations are those that hold the node now. [Client.Nodes] alone fills it in.
	Reservations []Reservation
	// Weight orders nodes: of those that would do, slurmctld takes the ones with the lowest.
	Weight int
	// Extra is an admin's or a program's text, free of newlines (since 22.05).
	Extra string
	// Version is the release of its slurmd, such as 22.05.8; empty if it has never registered.
	Version string
}

// Is reports whether the node has the state or flag.
func (n Node) Is(state string) bool {
	for _, s := range n.States {
		if s == state {
			return true
		}
	}
	return false
}

// parseNode reads `scontrol -d show node NAME`: lines of key=value words. Nothing in it is a user's. Some values have
// spaces (OS, Reason, Comment), so a key counts only where slurmctld writes it: at the start of a line, or, for three
// of them, behind another value that has none.
func parseNode(out, name string) (Node, error) {
	lines := strings.Split(out, "\n")
	first, _, _ := strings.Cut(lines[0], " ")
	if first != "NodeName="+name {
		return Node{}, fmt.Errorf("scontrol shows %.40q instead of node %s", first, name)
	}
	n := Node{Name: name}
	var err error
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	keep(words(lines[0], map[string]*int{"CoresPerSocket": &n.CoresPerSocket}))
	seen := make(map[string]bool)
	for _, line := range lines[1:] {
		key, value, ok := strings.Cut(strings.TrimLeft(line, " "), "=")
		if !ok || seen[key] {
			continue
		}
		seen[key] = true
		value = strings.TrimRight(value, " ")
		word, rest, _ := strings.Cut(value, " ")
		var e error
		switch key {
		case "ActiveFeatures":
			n.Features = list(word)
		case "Gres":
			n.Gres, e = ParseGRES(word)
		case "GresUsed":
			n.GresUsed, e = ParseGRES(word)
			n.Unregistered = n.Unregistered || strings.Contains(word, "gpu:") && !strings.Contains(word, "(IDX:")
		case "CfgTRES":
			var all []GRES
			all, e = ParseTRES(word)
			if i := slices.IndexFunc(all, func(g GRES) bool { return g == GRES{"mig", "", g.Count} }); i >= 0 {
				n.MIGTotal = all[i].Count
			}
		case "State":
			// A node that does not respond has a trailing * on its base state in releases before 22.05.
			n.States = strings.Split(strings.ReplaceAll(word, "*", ""), "+")
			e = words(
				rest,
				map[string]*int{"Weight": &n.Weight, "TmpDisk": &n.TmpDisk, "ThreadsPerCore": &n.ThreadsPerCore},
			)
		case "Partitions":
			n.Partitions = list(word)
		case "BootTime":
			n.BootTime, e = parseTime(word)
			keep(e)
			started, _, _ := strings.Cut(rest, " ")
			if s, ok := strings.CutPrefix(started, "SlurmdStartTime="); ok {
				n.SlurmdStartTime, e = parseTime(s)
				n.Unregistered = n.Unregistered || e == nil && n.SlurmdStartTime.IsZero()
			}
		case "NodeAddr": // NodeHostName, Port and, of a node that has registered, Version follow
			n.Addr = word
			for w := range strings.FieldsSeq(rest) {
				if v, ok := strings.CutPrefix(w, "Version="); ok {
					n.Version = v
				}
			}
		case "CPUAlloc":
			used, tot := 0, 0
			if used, e = strconv.Atoi(word); e != nil {
				break
			}
			// CPUEfctv is without those that slurmd keeps for itself (22.05 and later)
			for w := range strings.FieldsSeq(rest) {
				if v, ok := strings.CutPrefix(w, "CPUEfctv="); ok {
					n.CPUs, e = strconv.Atoi(v)
				} else if v, ok := strings.CutPrefix(w, "CPUTot="); ok {
					tot, e = strconv.Atoi(v)
				}
			}
			n.CPUs = cmp.Or(n.CPUs, tot)
			n.CPUsFree = n.CPUs - used
		case "RealMemory": // AllocMem and Sockets follow
			if n.Memory, e = strconv.Atoi(word); e != nil {
				break
			}
			used := 0
			e = words(rest, map[string]*int{"AllocMem": &used, "Sockets": &n.Sockets})
			n.MemoryFree = n.Memory - used
		case "Reason":
			n.Reason = value
		case "Extra":
			n.Extra = value
		}
		keep(e)
	}
	if err != nil {
		return Node{}, fmt.Errorf("node %s: %w", name, err)
	}
	if !seen["State"] || !seen["Gres"] || !seen["GresUsed"] {
		return Node{}, fmt.Errorf("node %s: scontrol shows no State, Gres or GresUsed", name)
	}
	return n, nil
}

// words reads those of a line's key=value words that are numbers of interest.
func words(line string, numbers map[string]*int) error {
	for w := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(w, "=")
		if to := numbers[key]; to != nil {
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			*to = n
		}
	}
	return nil
}
