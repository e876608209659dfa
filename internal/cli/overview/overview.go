package overview

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"caelum/internal/core/place"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// Node is a node that Caelum manages.
type Node struct {
	Name string `json:"node"`
	// State is slurmctld's base state and its flags, for example IDLE+DRAIN. Reason says why a node is drained or
	// down.
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"`
	Partitions []string `json:"partitions"`
	// Type lists the types of the node's gres/gpu, for example a100.
	Type string `json:"type,omitempty"`
	// Since is the time at which the agent last changed the offers, in Unix seconds.
	Since int64 `json:"offers_since,omitempty"`
	GPUs  []GPU `json:"gpus"`
	// Offers is the number of free slices on offer, by profile. Unlike an agent's status, it does not show their
	// positions.
	Offers map[string]int `json:"offers"`
	// Problem is the reason why the state of the GPUs is unknown, or empty if it is known.
	Problem string `json:"problem,omitempty"`
}

// GPU is one of a node's GPUs. If the agent does not manage it, Units is 0 and the drawings are empty.
type GPU struct {
	Index int `json:"index"`
	// Units is the number of placement units. Busy, Idle and Blocked count the units of busy instances, the units of
	// idle instances, and the units that no slice can use. The rest are free.
	Units   int `json:"units"`
	Busy    int `json:"busy"`
	Idle    int `json:"idle"`
	Blocked int `json:"blocked"`
	// Layout is the drawing in `caelum status`. Row is a shorter drawing, with one character per unit.
	Layout    string     `json:"layout"`
	Row       string     `json:"row"`
	Instances []Instance `json:"instances"`
}

// Instance is a GPU instance, or the placement of a slice that is about to be assigned to a job.
type Instance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	State   string `json:"state"` // Busy or Idle
	// End is the expected end of the slice's job in Unix seconds, or 0 if unknown or private.
	End int64 `json:"end,omitempty"`
}

// These constants are the states of an instance. Busy includes the instances that other programs use.
const (
	Busy = "busy"
	Idle = "idle"
)

// These characters represent the units in GPU.Row. A busy instance begins with the first character of its profile.
const (
	RowBusy    = '='
	RowIdle    = '~'
	RowFree    = '.'
	RowBlocked = '#'
)

// Nodes returns the nodes that Caelum manages, in the same order as records.
func Nodes(records []slurm.Node) []Node {
	all := []Node{}
	for _, r := range records {
		if r.Managed() {
			all = append(all, node(r))
		}
	}
	return all
}

func node(r slurm.Node) Node {
	n := Node{
		Name: r.Name, State: strings.Join(r.States, "+"), Reason: r.Reason, Partitions: r.Partitions,
		Type: gpuTypes(r.Gres), GPUs: []GPU{}, Offers: map[string]int{},
	}
	for profile, free := range r.Free("mig") {
		if profile != "" && profile != slurm.ClosedType && free > 0 {
			n.Offers[profile] = free
		}
	}
	text := plan.StateIn(r.Extra)
	if text == "" {
		n.Problem = "the agent is not running"
		return n
	}
	state, err := plan.Parse(text)
	if err != nil {
		n.Problem = err.Error()
		return n
	}
	if !state.Since.IsZero() {
		n.Since = state.Since.Unix()
	}
	for k, g := range state.GPUs {
		n.GPUs = append(n.GPUs, gpu(k, g))
	}
	return n
}

// gpuTypes returns the types of gres/gpu, separated by commas.
func gpuTypes(all slurm.GRESList) string {
	var types []string
	for _, g := range all.Named("gpu") {
		if g.Type != "" && !slices.Contains(types, g.Type) {
			types = append(types, g.Type)
		}
	}
	return strings.Join(types, ",")
}

func gpu(index int, g place.GPU) GPU {
	out := GPU{Index: index, Instances: []Instance{}}
	if g.Model == nil {
		return out
	}
	out.Units, out.Layout = g.Model.Grid, g.Model.DrawBeside(g.Busy, g.Blocked)
	row := []rune(strings.Repeat(string(RowFree), g.Model.Grid))
	for u := range row {
		if g.Blocked&(1<<u) != 0 {
			row[u] = RowBlocked
			out.Blocked++
		}
	}
	for i := range (g.Busy | g.Idle).Indices() {
		in := instance(g, i)
		for u := in.Start; u < in.Start+in.Size; u++ {
			switch {
			case in.State == Idle:
				row[u] = RowIdle
				out.Idle++
			default:
				row[u] = RowBusy
				out.Busy++
			}
		}
		if in.State == Busy {
			row[in.Start] = initial(in.Profile)
		}
		out.Instances = append(out.Instances, in)
	}
	slices.SortFunc(out.Instances, func(a, b Instance) int { return a.Start - b.Start })
	out.Row = string(row)
	return out
}

// initial returns the first character of a profile's name. Because administrators can write any name into Extra, it
// returns RowBusy unless the character is a digit or a letter.
func initial(profile string) rune {
	if profile == "" {
		return RowBusy
	}
	c := rune(profile[0])
	if c > unicode.MaxASCII || !unicode.IsDigit(c) && !unicode.IsLetter(c) {
		return RowBusy
	}
	return c
}

// instance returns the busy or idle instance at placement i.
func instance(g place.GPU, i int) Instance {
	at := g.Model.Placements[i]
	in := Instance{Profile: g.Model.ProfileOf(i), Start: at.Start, Size: at.Size, State: Idle}
	if g.Busy.Has(i) {
		in.State = Busy
		if g.Ends != nil && !math.IsInf(g.Ends[i], 1) {
			in.End = int64(g.Ends[i])
		}
	}
	return in
}

// Total is the sum over all nodes.
type Total struct {
	Nodes, GPUs, Units, Busy, Idle, Blocked int
	// Slices is the number of busy instances, and Shares is the number of GPUs that they occupy.
	Slices int
	Shares float64
	// Unknown is the number of nodes whose Problem is not empty. The sum omits their GPUs.
	Unknown int
}

// Sum returns the sum over all nodes. It omits GPUs that the agents do not manage.
func Sum(nodes []Node) (t Total) {
	t.Nodes = len(nodes)
	for _, n := range nodes {
		if n.Problem != "" {
			t.Unknown++
		}
		for _, g := range n.GPUs {
			if g.Units > 0 {
				t.GPUs++
				t.Shares += float64(g.Busy) / float64(g.Units)
			}
			for _, in := range g.Instances {
				if in.State == Busy {
					t.Slices++
				}
			}
			t.Units, t.Busy, t.Idle, t.Blocked = t.Units+g.Units, t.Busy+g.Busy, t.Idle+g.Idle, t.Blocked+g.Blocked
		}
	}
	return t
}
