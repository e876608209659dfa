package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"caelum/internal/cli/overview"
	"caelum/internal/slurm"
)

// tone is the meaning of a part of the output. caelum top gives each tone its own colour, whereas caelum status ignores
// the tones.
type tone int

const (
	plain tone = iota
	title
	busy
	idle
	free
	blocked
	warning
)

// span is a string with a tone. It consists of printable characters only.
type span struct {
	text string
	tone tone
}

// spans is a line of the output.
type spans []span

// say returns a line that consists of one span, with any unprintable characters replaced.
func say(t tone, format string, args ...any) spans {
	return spans{{printable(fmt.Sprintf(format, args...)), t}}
}

func (l spans) width() (n int) {
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// printLines writes the lines to w and ignores their tones.
func printLines(w io.Writer, lines []spans) error {
	for _, l := range lines {
		var text strings.Builder
		for _, s := range l {
			text.WriteString(s.text)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(text.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// inColumns returns the lines of a table with left-aligned columns.
func inColumns(table [][]spans) (lines []spans) {
	var widths []int
	for _, row := range table {
		for k, cell := range row {
			if k == len(widths) {
				widths = append(widths, 0)
			}
			widths[k] = max(widths[k], cell.width())
		}
	}
	for _, row := range table {
		var l spans
		for k, cell := range row {
			l = append(append(l, cell...), span{strings.Repeat(" ", widths[k]-cell.width()+2), plain})
		}
		lines = append(lines, l)
	}
	return lines
}

// header returns the first row of a table.
func header(names ...string) (row []spans) {
	for _, name := range names {
		row = append(row, say(title, "%s", name))
	}
	return row
}

// allNodesHead is the number of lines above the first node in the result of allNodes.
const allNodesHead = 4

// allNodes returns the output for all nodes.
func allNodes(nodes []overview.Node) []spans {
	if len(nodes) == 0 {
		return []spans{say(plain, "slurmctld has no nodes with gres/mig, so Caelum manages no node of this cluster")}
	}
	t := overview.Sum(nodes)
	sum := fmt.Sprintf("%s, %s: %d of %d units busy, %d idle, %d free", plural(t.Nodes, "node"), plural(t.GPUs, "GPU"),
		t.Busy, t.Units, t.Idle, t.Units-t.Busy-t.Idle-t.Blocked)
	if t.Blocked > 0 {
		sum += fmt.Sprintf(", %d blocked", t.Blocked)
	}
	if t.Unknown > 0 {
		sum += fmt.Sprintf("; not counting %s whose state is unknown", plural(t.Unknown, "node"))
	}
	table := [][]spans{header("NODE", "STATE", "GPU", "BUSY", "UNITS", "ON OFFER")}
	for _, n := range nodes {
		table = append(table, nodeRow(n))
	}
	slices := say(plain, "slices in use: %d, on %.1f GPUs instead of %[1]d whole ones", t.Slices, t.Shares)
	lines := append([]spans{say(title, "%s", sum), slices, nil}, inColumns(table)...)
	return append(lines, nil, spans{
		{"UNITS: ", plain}, {"3===", busy}, {" busy (3g...), ", plain}, {"~", idle}, {" idle, ", plain},
		{".", free}, {" free, ", plain}, {"#", blocked}, {" blocked, - GPU without an agent", plain},
	})
}

// nodeRow returns the table row for a node.
func nodeRow(n overview.Node) []spans {
	state, used, units := plain, 0, 0
	if n.Reason != "" {
		state = warning
	}
	var bars spans
	for k, g := range n.GPUs {
		used, units = used+g.Busy, units+g.Units
		if k > 0 {
			bars = append(bars, span{" ", plain})
		}
		bars = append(bars, unitsOf(g)...)
	}
	row := []spans{say(plain, "%s", n.Name), say(state, "%s", n.State), say(plain, "%s", n.Type)}
	if n.Problem != "" {
		return append(row, nil, nil, say(warning, "%s", n.Problem))
	}
	return append(row, say(plain, "%d/%d", used, units), bars, say(plain, "%s", offered(n)))
}

// unitsOf returns the row of units for a GPU, with a tone for each unit.
func unitsOf(g overview.GPU) (l spans) {
	if g.Units == 0 {
		return say(plain, "-")
	}
	for _, c := range g.Row {
		t := busy
		switch c {
		case overview.RowIdle:
			t = idle
		case overview.RowFree:
			t = free
		case overview.RowBlocked:
			t = blocked
		}
		if k := len(l) - 1; k >= 0 && l[k].tone == t {
			l[k].text += string(c)
		} else {
			l = append(l, span{string(c), t})
		}
	}
	return l
}

// offered returns a node's offers, for example "1g.5gb x2", or "nothing".
func offered(n overview.Node) string {
	if len(n.Offers) == 0 {
		return "nothing"
	}
	return counts(n.Offers)
}

// nodeDetail describes one node and its jobs. It is the JSON form of caelum status NODE.
type nodeDetail struct {
	overview.Node
	Jobs []nodeJob `json:"jobs"`
}

// nodeJob is a job with GPUs on a node, as slurmctld shows it to the caller.
type nodeJob struct {
	Job    uint32         `json:"job"`
	User   string         `json:"user"`
	State  string         `json:"state"`
	Slices map[string]int `json:"slices"` // the requested slices per node, by profile
	GPUs   int            `json:"gpus"`   // the requested gres/gpu per node
	Start  int64          `json:"start"`  // Unix seconds, or 0
}

func newNodeJobs(all []slurm.Job) []nodeJob {
	jobs := []nodeJob{}
	for _, j := range all {
		n := nodeJob{Job: j.ID, User: j.User, State: j.State, Slices: map[string]int{}, GPUs: j.GPUsPerNode()}
		for _, g := range j.SlicesPerNode() {
			n.Slices[g.Type] += g.Count
		}
		if n.GPUs == 0 && len(n.Slices) == 0 {
			continue
		}
		if !j.Start.IsZero() {
			n.Start = j.Start.Unix()
		}
		jobs = append(jobs, n)
	}
	return jobs
}

// oneNode returns the output for one node.
func oneNode(n nodeDetail, now time.Time) []spans {
	first := fmt.Sprintf("node %s, %s", n.Name, n.State)
	if n.Since != 0 {
		first += fmt.Sprintf(", offers last changed %s ago", now.Sub(time.Unix(n.Since, 0)).Round(time.Second))
	}
	lines := []spans{say(title, "%s", first)}
	if n.Reason != "" {
		lines = append(lines, say(warning, "reason: %s", n.Reason))
	}
	if n.Problem != "" {
		lines = append(lines, say(warning, "%s; run `caelum doctor` on the node", n.Problem))
	}
	for _, g := range n.GPUs {
		lines = append(append(lines, nil), gpuLines(n, g)...)
	}
	lines = append(lines, nil, say(plain, "on offer: %s", offered(n.Node)))
	if len(n.Jobs) == 0 {
		return lines
	}
	table := [][]spans{header("JOB", "USER", "STATE", "SLICES", "STARTED")}
	for _, j := range n.Jobs {
		slices := counts(j.Slices)
		if slices == "" {
			slices = plural(j.GPUs, "GPU")
		}
		started := "-"
		if j.Start != 0 {
			started = time.Unix(j.Start, 0).Format(time.DateTime)
		}
		table = append(table, []spans{
			say(plain, "%d", j.Job), say(plain, "%s", j.User), say(plain, "%s", j.State), say(plain, "%s", slices),
			say(plain, "%s", started),
		})
	}
	return append(append(lines, nil), inColumns(table)...)
}

// gpuLines returns the output for one GPU of a node: the drawing and the instances.
func gpuLines(n nodeDetail, g overview.GPU) []spans {
	if g.Units == 0 {
		return []spans{say(plain, "GPU %d  not managed; run `caelum status` on the node to see the reason", g.Index)}
	}
	lines := []spans{say(plain, "GPU %d  %s", g.Index, n.Type), say(busy, "  %s", g.Layout)}
	var table [][]spans
	for _, in := range g.Instances {
		state, t := in.State, busy
		if in.State == overview.Idle {
			t = idle
		}
		if in.End != 0 {
			state += ", expected end " + time.Unix(in.End, 0).Format(time.DateTime)
		}
		table = append(table,
			[]spans{say(plain, "  %s", in.Profile), say(plain, "at %d", in.Start), say(t, "%s", state)})
	}
	return append(lines, inColumns(table)...)
}
