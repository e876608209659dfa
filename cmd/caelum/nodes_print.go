package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"caelum/internal/cli/overview"
	"caelum/internal/slurm"
)

// printAllNodes prints the output for all nodes.
func printAllNodes(w io.Writer, nodes []overview.Node) {
	if len(nodes) == 0 {
		fmt.Fprintln(w, "slurmctld has no nodes with gres/mig, so Caelum manages no node of this cluster")
		return
	}
	t := overview.Sum(nodes)
	fmt.Fprintf(w, "%s, %s: %d of %d units busy, %d idle, %d free", plural(t.Nodes, "node"), plural(t.GPUs, "GPU"),
		t.Busy, t.Units, t.Idle, t.Units-t.Busy-t.Idle-t.Blocked)
	if t.Blocked > 0 {
		fmt.Fprintf(w, ", %d blocked", t.Blocked)
	}
	if t.Unknown > 0 {
		fmt.Fprintf(w, "; not counting %s whose state is unknown", plural(t.Unknown, "node"))
	}
	fmt.Fprintf(w, "\nslices in use: %d, on %.1f GPUs instead of %[1]d whole ones\n\n", t.Slices, t.Shares)
	table := [][]string{{"NODE", "STATE", "GPU", "BUSY", "UNITS", "ON OFFER"}}
	for _, n := range nodes {
		table = append(table, nodeRow(n))
	}
	printRows(w, table)
	fmt.Fprintln(w, "\nUNITS: 3=== busy (3g...), ~ idle, . free, # blocked, - GPU without an agent")
}

// printRows prints a table with left-aligned columns, with any unprintable characters replaced.
func printRows(w io.Writer, table [][]string) {
	for _, row := range table {
		for k := range row {
			row[k] = printable(row[k])
		}
	}
	rows(w, make([]bool, len(table[0])), table)
}

// nodeRow returns the table row for a node.
func nodeRow(n overview.Node) []string {
	if n.Problem != "" {
		return []string{n.Name, n.State, n.Type, "", "", n.Problem}
	}
	used, units := 0, 0
	var drawn []string
	for _, g := range n.GPUs {
		used, units, drawn = used+g.Busy, units+g.Units, append(drawn, orDash(g.Row))
	}
	return []string{n.Name, n.State, n.Type, fmt.Sprintf("%d/%d", used, units), strings.Join(drawn, " "), offered(n)}
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

// printNode prints the output for one node.
func printNode(w io.Writer, n nodeDetail, now time.Time) {
	fmt.Fprintf(w, "node %s, %s", printable(n.Name), printable(n.State))
	if n.Since != 0 {
		fmt.Fprintf(w, ", offers last changed %s ago", now.Sub(time.Unix(n.Since, 0)).Round(time.Second))
	}
	fmt.Fprintln(w)
	if n.Reason != "" {
		fmt.Fprintf(w, "reason: %s\n", printable(n.Reason))
	}
	if n.Problem != "" {
		fmt.Fprintf(w, "%s; run `caelum doctor` on the node\n", printable(n.Problem))
	}
	for _, g := range n.GPUs {
		printNodeGPU(w, n.Type, g)
	}
	fmt.Fprintf(w, "\non offer: %s\n", printable(offered(n.Node)))
	if len(n.Jobs) == 0 {
		return
	}
	table := [][]string{{"JOB", "USER", "STATE", "SLICES", "STARTED"}}
	for _, j := range n.Jobs {
		slices := counts(j.Slices)
		if slices == "" {
			slices = plural(j.GPUs, "GPU")
		}
		started := "-"
		if j.Start != 0 {
			started = time.Unix(j.Start, 0).Format(time.DateTime)
		}
		table = append(table, []string{fmt.Sprint(j.Job), j.User, j.State, slices, started})
	}
	fmt.Fprintln(w)
	printRows(w, table)
}

// printNodeGPU prints one GPU of a node: the drawing and the instances.
func printNodeGPU(w io.Writer, model string, g overview.GPU) {
	if g.Units == 0 {
		fmt.Fprintf(w, "\nGPU %d  not managed; run `caelum status` on the node to see the reason\n", g.Index)
		return
	}
	fmt.Fprintf(w, "\nGPU %d  %s\n  %s\n", g.Index, printable(model), printable(g.Layout))
	var table [][]string
	for _, in := range g.Instances {
		state := in.State
		if in.End != 0 {
			state += ", expected end " + time.Unix(in.End, 0).Format(time.DateTime)
		}
		table = append(table, []string{"  " + in.Profile, "at " + strconv.Itoa(in.Start), state})
	}
	if len(table) > 0 {
		printRows(w, table)
	}
}
