package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"caelum/internal/cli/overview"
	"caelum/internal/slurm"
)

// nodesTimeout is the timeout for each request for nodes or jobs.
const nodesTimeout = 20 * time.Second

// newController returns the client that status and top use. It looks up Slurm's commands in PATH, because they may be
// installed in any directory.
func newController() *slurm.Client {
	return slurm.New(slurm.Options{Scontrol: "scontrol", Squeue: "squeue", Timeout: nodesTimeout})
}

// clusterStatus is the JSON form of caelum status --all.
type clusterStatus struct {
	Nodes []overview.Node `json:"nodes"`
}

// statusElsewhere prints all nodes. If the NodeName or NodeHostName of one of them is this host's name, statusElsewhere
// returns noAgent, the error from the call to the agent, because the user probably wanted the status of this node.
func statusElsewhere(ctx context.Context, w io.Writer, g *globals, noAgent error) error {
	records, err := newController().NodeRecords(ctx)
	if err != nil {
		return fmt.Errorf("%w. If this is a GPU node: %w", nodesError(err), noAgent)
	}
	nodes := overview.Nodes(records)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	isHost := func(name string) bool { return strings.EqualFold(shortName(name), shortName(host)) }
	for _, r := range records {
		managed := slices.ContainsFunc(nodes, func(n overview.Node) bool { return n.Name == r.Name })
		if managed && (isHost(r.Name) || isHost(r.HostName)) {
			return noAgent
		}
	}
	return printAll(w, g, nodes)
}

// shortName returns a host name without its domain.
func shortName(host string) string {
	short, _, _ := strings.Cut(host, ".")
	return short
}

func printAll(w io.Writer, g *globals, nodes []overview.Node) error {
	if g.json {
		return printJSON(w, clusterStatus{nodes})
	}
	return printLines(w, allNodes(nodes))
}

// printNodes prints the node with the given name, or all nodes if the name is empty.
func printNodes(ctx context.Context, w io.Writer, g *globals, name string) error {
	ctl := newController()
	if name == "" {
		records, err := ctl.NodeRecords(ctx)
		if err != nil {
			return nodesError(err)
		}
		return printAll(w, g, overview.Nodes(records))
	}
	n, err := readNode(ctx, ctl, name)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(w, n)
	}
	return printLines(w, oneNode(n, time.Now()))
}

// readNode reads a node and its jobs with two requests.
func readNode(ctx context.Context, ctl *slurm.Client, name string) (n nodeDetail, err error) {
	record, err := ctl.Node(ctx, name)
	if err != nil {
		return n, nodesError(err)
	}
	nodes := overview.Nodes([]slurm.Node{record})
	if len(nodes) == 0 {
		return n, fmt.Errorf(
			"node %s is not managed by Caelum, because it has no gres/mig; see `caelum status --all`", name)
	}
	jobs, err := ctl.JobsOn(ctx, name)
	return nodeDetail{nodes[0], newNodeJobs(jobs)}, err
}

// nodesError adds an explanation to err if slurmctld did not answer or refused a request for nodes.
func nodesError(err error) error {
	if errors.Is(err, slurm.ErrUnreachable) {
		return fmt.Errorf("%w, so caelum cannot show the nodes; find the cause with `scontrol ping`",
			slurm.ErrUnreachable)
	}
	var e *slurm.CommandError
	if errors.As(err, &e) && strings.Contains(e.Stderr, "Access/permission denied") {
		return fmt.Errorf("slurmctld shows the nodes only to operators (PrivateData=nodes in slurm.conf); "+
			"run the command as an operator, or run `caelum status` on a node: %w", err)
	}
	return err
}
