package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Nodes reads all nodes except those in the FUTURE state, such as the catalogue nodes. If any node is reserved, it also
// reads the reservations. Errors: ErrUnreachable.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) { return c.nodes(ctx) }

// NamedNodes reads several nodes with one command and returns them in the order of the arguments. If slurmctld does not
// know one of them, it returns ErrNoNode. Errors: ErrNoNode, ErrUnreachable.
func (c *Client) NamedNodes(ctx context.Context, names ...string) ([]Node, error) {
	for _, name := range names {
		if err := checkNode(name); err != nil {
			return nil, err
		}
	}
	asked := time.Now()
	out, err := c.showNodes(ctx, names...)
	if err != nil {
		return nil, err
	}
	nodes, err := parseNodes(out, asked)
	if err != nil {
		return nil, err
	}
	var named []Node
	for _, name := range names {
		k := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
		if k < 0 {
			return nil, fmt.Errorf("node %s: %w", name, ErrNoNode)
		}
		named = append(named, nodes[k])
	}
	return named, nil
}

// AllNodes is like Nodes, but also reads the nodes in the FUTURE state. Errors: ErrUnreachable.
func (c *Client) AllNodes(ctx context.Context) ([]Node, error) { return c.nodes(ctx, "--future") }

func (c *Client) nodes(ctx context.Context, options ...string) ([]Node, error) {
	nodes, err := c.nodeRecords(ctx, options...)
	// slurmctld also sets RESERVED during maintenance.
	if err != nil || !slices.ContainsFunc(nodes, func(n Node) bool { return n.Is("RESERVED") }) {
		return nodes, err
	}
	out, err := c.run(ctx, nil, c.scontrol, "show", "reservation")
	if err != nil {
		return nil, err
	}
	return nodes, reserve(nodes, out)
}

// NodeRecords is like Nodes, but always makes only one request and does not read the reservations. Errors:
// ErrUnreachable.
func (c *Client) NodeRecords(ctx context.Context) ([]Node, error) { return c.nodeRecords(ctx) }

func (c *Client) nodeRecords(ctx context.Context, options ...string) ([]Node, error) {
	asked := time.Now()
	out, err := c.run(ctx, nil, c.scontrol, append(options, "-d", "show", "node")...)
	if err != nil {
		return nil, err
	}
	return parseNodes(out, asked)
}

// parseNodes splits the output before each line that begins with NodeName=, since all other lines are indented. asked
// is the time of the request.
func parseNodes(out string, asked time.Time) ([]Node, error) {
	var nodes []Node
	for record := range strings.SplitSeq("\n"+out, "\nNodeName=") {
		name, _, ok := strings.Cut(record, " ")
		if !ok {
			continue
		}
		n, err := parseNode("NodeName="+record, name)
		if err != nil {
			return nil, err
		}
		n.Asked = asked
		nodes = append(nodes, n)
	}
	return nodes, nil
}
