package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Node is slurmctld's record of a node.
type Node struct {
	Name string
	// Asked is the time at which the request was sent; the reply reflects all earlier changes.
	Asked time.Time
	// States lists the base state and its flags: IDLE, MIXED, DOWN; DRAIN, COMPLETING, NOT_RESPONDING, INVALID_REG,
	// ...
	States     []string
	Reason     string
	Partitions []string
	// Gres holds the node's totals, and GresUsed holds the part of them that slurmctld counts as used. A restart of
	// slurmctld can reset some used counts.
	Gres, GresUsed GRESList
	// MIGTotal is the node's gres/mig count in slurm.conf, as CfgTRES shows it: neither `scontrol update` nor the
	// registration of slurmd changes CfgTRES (22.05.8). MIGTotal is 0, which means unknown, if AccountingStorageTRES
	// does not include gres/mig.
	MIGTotal int
	// Unregistered is true after a restart of slurmctld until slurmd has registered. Until then, slurmctld does not
	// know any of the node's device files: a job that it starts there is allocated gres/gpu without slot numbers, so
	// SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES are not set. In a test with 22.05.8, this lasted 5 s. A node is in this
	// state if SlurmdStartTime is None or, in 22.05, if GresUsed does not contain "(IDX:...)". Since 23.02, slurmctld
	// saves the indices, so GresUsed shows them even before slurmd has registered (tested with 24.11.5 and 26.05.5).
	Unregistered              bool
	BootTime, SlurmdStartTime time.Time
	// Features lists the active features, that is, those that slurmctld can provide to a job without rebooting the
	// node.
	Features []string
	// Addr is NodeAddr, which is a name or an address.
	Addr string
	// HostName is NodeHostName. It differs from Name if slurm.conf sets it, or if slurmd's NodeName is not the name
	// of its host.
	HostName string
	// CPUs is the number of CPUs that slurmctld can allocate, and CPUsFree is the number of those that are unallocated.
	// Both are 0 if unknown.
	CPUs, CPUsFree int
	// Memory is the memory, in MiB, that slurmctld can allocate, and MemoryFree is the unallocated part. They are
	// equal if memory is not a consumable resource. Both are 0 if unknown.
	Memory, MemoryFree int
	// TmpDisk is the size of the temporary disk in MiB. Sockets, CoresPerSocket and ThreadsPerCore are 0 if unknown.
	TmpDisk, Sockets, CoresPerSocket, ThreadsPerCore int
	// Reservations lists the active reservations that include the node. Only [Client.Nodes] sets this field.
	Reservations []Reservation
	// Weight orders the nodes: among suitable nodes, slurmctld prefers those with the lowest weight.
	Weight int
	// Extra is free text that an administrator or a program has set. Since 22.05, it cannot contain newlines.
	Extra string
	// Comment is free text like Extra.
	Comment string
	// Version is the release of the node's slurmd, such as 22.05.8. It is empty if slurmd has never registered.
	Version string
}

// Is reports whether the node has the given state or flag.
func (n Node) Is(state string) bool {
	for _, s := range n.States {
		if s == state {
			return true
		}
	}
	return false
}

// Free returns the number of unused units of each type of a GRES on the node. A GRES without types has the type "".
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

// ValidNode reports whether name is a valid name for a single node.
func ValidNode(name string) bool { return nodeName.MatchString(name) }

func checkNode(name string) error {
	if !ValidNode(name) {
		return fmt.Errorf("%w: %.80q is not a node name", ErrNoNode, name)
	}
	return nil
}

// Node reads a node's record. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	if err := checkNode(name); err != nil {
		return Node{}, err
	}
	asked := time.Now()
	out, err := c.showNodes(ctx, name)
	if err != nil {
		return Node{}, err
	}
	n, err := parseNode(out, name)
	n.Asked = asked
	return n, err
}

// showNodes returns the records of nodes as text, with caelum-show if possible and with scontrol otherwise.
func (c *Client) showNodes(ctx context.Context, names ...string) (string, error) {
	if c.show != "" {
		if out, err := c.run(ctx, nil, c.show, append([]string{"node"}, names...)...); !unusable(err) {
			return out, err
		}
	}
	return c.run(ctx, nil, c.scontrol, "-d", "show", "node", strings.Join(names, ","))
}

// CheckShow returns an error if caelum-show does not exist or was built for another release of Slurm. Without
// arguments, caelum-show exits with 2.
func (c *Client) CheckShow(ctx context.Context) error {
	if _, err := c.run(ctx, nil, c.show); exitCode(err) != 2 {
		return err
	}
	return nil
}

// unusable reports whether a program could not start, or was killed by a signal. The dynamic linker exits with 127 if
// it does not find a library, such as the one of the Slurm release for which the program was built, and with 1 and a
// message that ends in "(required by FILE)" if the library lacks a version (glibc 2.36).
func unusable(err error) bool {
	var exit *exec.ExitError
	var command *CommandError
	return errors.Is(err, ErrCommand) || errors.As(err, &exit) && (exit.ExitCode() == 127 || !exit.Exited()) ||
		errors.As(err, &command) && strings.Contains(command.Stderr, "(required by ")
}

// exitCode returns the exit status of a failed command, or -1 if the command did not exit.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// parseNode parses the output of `scontrol -d show node NAME`. The output consists of lines of key=value pairs. Users
// cannot change these lines. Some values contain spaces (OS, Reason, Comment), so a key is accepted only where
// slurmctld writes it: at the beginning of a line or, for some keys, after a value without spaces.
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
	// Since 24.05, GresUsed omits a GRES without available units (_node_gres_used in gres.c). The line is therefore
	// missing for nodes without GRES (observed with 24.11.5), and for nodes whose GPUs slurmd has not found. A node
	// with gres/mig always has available units, even if only of the `closed` type.
	used := seen["GresUsed"] || n.Gres.Total("mig") == 0
	if !seen["State"] || !seen["Gres"] || !used {
		return Node{}, fmt.Errorf("node %s: scontrol does not show all of State, Gres and GresUsed", name)
	}
	return n, nil
}

// set sets the fields whose values share a line. key is the line's first key, and value is the rest of the line.
func (n *Node) set(key, value string) (err error) {
	word, rest, _ := strings.Cut(value, " ")
	switch key {
	case "NodeAddr": // the line also has NodeHostName, Port and, if the node has registered, Version
		n.Addr = word
		for w := range strings.FieldsSeq(rest) {
			if v, ok := strings.CutPrefix(w, "Version="); ok {
				n.Version = v
			}
			if v, ok := strings.CutPrefix(w, "NodeHostName="); ok {
				n.HostName = v
			}
		}
	case "State":
		// In releases before 22.05, the base state of a node that is not responding ends with *.
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
		// CPUEfctv does not include CPUs reserved for slurmd (22.05 and later).
		used, usable, total := 0, 0, 0
		err = words("CPUAlloc="+value, map[string]*int{"CPUAlloc": &used, "CPUEfctv": &usable, "CPUTot": &total})
		n.CPUs = cmp.Or(usable, total)
		n.CPUsFree = n.CPUs - used
	case "RealMemory": // the line also has AllocMem and Sockets
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
	case "Comment":
		n.Comment = value
	}
	return err
}

// setStart sets the start times of the node and its slurmd. rest is the text after BootTime.
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

// words sets each number to the value of its key in a line of key=value pairs.
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
