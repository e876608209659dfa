package slurm

import (
	"context"
	"strings"
	"time"
)

// Nodes reads every node, the catalogue's too. ErrUnreachable.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	asked := time.Now()
	out, err := c.run(ctx, nil, c.scontrol, "-d", "show", "node")
	if err != nil {
		return nil, err
	}
	nodes, err := parseNodes(out)
	for i := range nodes {
		nodes[i].Asked = asked
	}
	return nodes, err
}

// parseNodes cuts the output at the lines that begin with NodeName=: no other line of a record begins at the margin.
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
