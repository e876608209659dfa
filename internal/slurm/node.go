package slurm

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Node is slurmctld's record of a node.
type Node struct {
	Name string
	// Asked is the time of the request to slurmctld. The answer includes all earlier changes.
	Asked time.Time
	// States is the base state and its flags: IDLE, MIXED, DOWN; DRAIN, COMPLETING, NOT_RESPONDING, INVALID_REG, ...
	States     []string
	Reason     string
	Partitions []string
	// Gres contains the node's totals, and GresUsed contains the part that slurmctld counts as
	// used. slurmctld loses some of the used counts when it restarts.
	Gres, GresUsed GRESList
	// MIGTotal is the node's count of gres/mig in slurm.conf, from CfgTRES. `scontrol update`
	// and slurmd's registration do not change it (22.05.8). 0 means that MIGTotal is unknown,
	// because AccountingStorageTRES does not include gres/mig.
	MIGTotal int
	// Unregistered is set after a restart of slurmctld until slurmd has registered. During this time slurmctld does
	// not know the node's device files, and a job that it starts there gets gres/gpu without the numbers of its
	// slots: SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES are not set. With 22.05.8, this state lasted 5 s in a test.
	// SlurmdStartTime is then None. In 22.05, GresUsed also lacks its "(IDX:...)". Since 23.02, slurmctld saves the
	// indices, so their presence proves nothing (tested with 24.11.5 and 26.05.5).
	Unregistered              bool
	BootTime, SlurmdStartTime time.Time
	// Features contains the active features. slurmctld can start jobs that request these
	// features without a reboot of the node.
	Features []string
	// Addr is NodeAddr: a name or an address.
	Addr string
	// CPUs is the number of CPUs that slurmctld can allocate, and CPUsFree is the number of these CPUs that are not
	// allocated. 0 means unknown.
	CPUs, CPUsFree int
	// Memory is the memory that slurmctld can allocate, and MemoryFree is the part that is not
	// allocated, in MiB. If memory is not a consumable resource, MemoryFree is equal to Memory.
	// 0 means unknown.
	Memory, MemoryFree int
	// TmpDisk is in MiB. For sockets, cores and threads, 0 means unknown.
	TmpDisk, Sockets, CoresPerSocket, ThreadsPerCore int
	// Reservations contains the active reservations that include the node. Only [Client.Nodes]
	// sets them.
	Reservations []Reservation
	// Weight orders the nodes: slurmctld prefers suitable nodes with a lower weight.
	Weight int
	// Extra is a text that an administrator or a program has set, without newlines (since 22.05).
	Extra string
	// Version is the release of the node's slurmd, such as 22.05.8; empty if slurmd has never registered.
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

// Free returns the unused count of each type of a GRES on the node. An untyped GRES has the type "".
func (n Node) Free(name string) map[string]int {
	free := map[string]int{}
	for _, g := range n.Gres {
		if g.Name == name {
			free[g.Type] += g.Count
		}
	}
	for _, g := range n.GresUsed {
		if g.Name == name {
			free[g.Type] -= g.Count
		}
	}
	return free
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ValidNode reports whether a text can be the name of one node.
func ValidNode(name string) bool { return nodeName.MatchString(name) }

func checkNode(name string) error {
	if !ValidNode(name) {
		return fmt.Errorf("%w: %.80q is not a node name", ErrNoNode, name)
	}
	return nil
}

// Node reads a node. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	if err := checkNode(name); err != nil {
		return Node{}, err
	}
	asked := time.Now()
	out, err := c.run(ctx, nil, c.scontrol, "-d", "show", "node", name)
	if err != nil {
		return Node{}, err
	}
	n, err := parseNode(out, name)
	n.Asked = asked
	return n, err
}

// parseNode reads the output of `scontrol -d show node NAME`: lines of key=value words, which users cannot write. Some
// values contain spaces (OS, Reason, Comment), so parseNode accepts a key only where slurmctld writes it. This is the
// start of a line, or for some keys the position after a value without spaces.
func parseNode(out, name string) (Node, error) {
	lines := strings.Split(out, "\n")
	first, _, _ := strings.Cut(lines[0], " ")
	if first != "NodeName="+name {
		return Node{}, fmt.Errorf("scontrol shows %.40q instead of node %s", first, name)
	}
	n := Node{Name: name}
	if err := words(lines[0], map[string]*int{"CoresPerSocket": &n.CoresPerSocket}); err != nil {
		return Node{}, fmt.Errorf("node %s: %w", name, err)
	}
	seen := make(map[string]bool)
	for _, line := range lines[1:] {
		key, value, ok := strings.Cut(strings.TrimLeft(line, " "), "=")
		if !ok || seen[key] {
			continue
		}
		seen[key] = true
		if err := n.set(key, strings.TrimRight(value, " ")); err != nil {
			return Node{}, fmt.Errorf("node %s: %w", name, err)
		}
	}
	// Since 24.05, GresUsed omits a GRES of which no unit is available (_node_gres_used in gres.c). The line is
	// therefore missing for a node without GRES (seen with 24.11.5), and for a node whose GPUs slurmd has not
	// found. A node with gres/mig always has available units, at least of the type closed.
	used := seen["GresUsed"] || n.Gres.Total("mig") == 0
	if !seen["State"] || !seen["Gres"] || !used {
		return Node{}, fmt.Errorf("node %s: scontrol shows no State, Gres or GresUsed", name)
	}
	return n, nil
}

// set sets the fields that a line shows. key is the first key of the line, and value is the rest of the line.
func (n *Node) set(key, value string) (err error) {
	word, rest, _ := strings.Cut(value, " ")
	switch key {
	case "NodeAddr": // followed by NodeHostName, Port and, if the node has registered, Version
		n.Addr = word
		for w := range strings.FieldsSeq(rest) {
			if v, ok := strings.CutPrefix(w, "Version="); ok {
				n.Version = v
			}
		}
	case "State":
		// A node that does not respond has a trailing * on its base state in releases before 22.05.
		n.States = strings.Split(strings.ReplaceAll(word, "*", ""), "+")
		err = words(
			rest,
			map[string]*int{"Weight": &n.Weight, "TmpDisk": &n.TmpDisk, "ThreadsPerCore": &n.ThreadsPerCore},
		)
	case "BootTime":
		err = n.setStart(word, rest)
	case "Gres":
		n.Gres, err = ParseGRES(word)
	case "GresUsed":
		n.GresUsed, err = ParseGRES(word)
		n.Unregistered = n.Unregistered || strings.Contains(word, "gpu:") && !strings.Contains(word, "(IDX:")
	case "CfgTRES":
		var all GRESList
		all, err = ParseTRES(word)
		if i := slices.IndexFunc(all, func(g GRES) bool { return g == GRES{"mig", "", g.Count} }); i >= 0 {
			n.MIGTotal = all[i].Count
		}
	case "CPUAlloc":
		// CPUEfctv does not include the CPUs that are reserved for slurmd (22.05 and later).
		used, usable, total := 0, 0, 0
		err = words("CPUAlloc="+value, map[string]*int{"CPUAlloc": &used, "CPUEfctv": &usable, "CPUTot": &total})
		n.CPUs = cmp.Or(usable, total)
		n.CPUsFree = n.CPUs - used
	case "RealMemory": // followed by AllocMem and Sockets
		used := 0
		err = words(
			"RealMemory="+value,
			map[string]*int{"RealMemory": &n.Memory, "AllocMem": &used, "Sockets": &n.Sockets},
		)
		n.MemoryFree = n.Memory - used
	case "ActiveFeatures":
		n.Features = list(word)
	case "Partitions":
		n.Partitions = list(word)
	case "Reason":
		n.Reason = value
	case "Extra":
		n.Extra = value
	}
	return err
}

// setStart sets the times at which the node and its slurmd were started. rest is the text after BootTime.
func (n *Node) setStart(boot, rest string) (err error) {
	if n.BootTime, err = parseTime(boot); err != nil {
		return err
	}
	started, _, _ := strings.Cut(rest, " ")
	if s, ok := strings.CutPrefix(started, "SlurmdStartTime="); ok {
		n.SlurmdStartTime, err = parseTime(s)
		n.Unregistered = n.Unregistered || err == nil && n.SlurmdStartTime.IsZero()
	}
	return err
}

// words sets each of the numbers to the value of its key in a line of key=value words.
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
