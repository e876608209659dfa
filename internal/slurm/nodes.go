package slurm

import (
	"context"
	"strings"
	"time"
)

// Nodes reads all nodes except those in the FUTURE state, such as the catalogue nodes. If a node is reserved, Nodes
// also reads the reservations. Errors: ErrUnreachable.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) { return c.nodes(ctx) }

// AllNodes is like Nodes, but also reads the nodes in the FUTURE state. Errors: ErrUnreachable.
func (c *Client) AllNodes(ctx context.Context) ([]Node, error) { return c.nodes(ctx, "--future") }

func (c *Client) nodes(ctx context.Context, options ...string) ([]Node, error) {
	asked := time.Now()
	out, err := c.run(ctx, nil, c.scontrol, append(options, "-d", "show", "node")...)
	if err != nil {
		return nil, err
	}
	nodes, err := parseNodes(out)
	reserved := false
	for i := range nodes {
		nodes[i].Asked = asked
		reserved = reserved || nodes[i].Is("RESERVED") // slurmctld also sets RESERVED during maintenance
	}
	if !reserved || err != nil {
		return nodes, err
	}
	if out, err = c.run(ctx, nil, c.scontrol, "show", "reservation"); err != nil {
		return nil, err
	}
	return nodes, reserve(nodes, out)
}

// parseNodes splits the output before each line that begins with NodeName=. All other lines of a record are indented.
func parseNodes(out string) ([]Node, error) {
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
		nodes = append(nodes, n)
	}
	return nodes, nil
}
