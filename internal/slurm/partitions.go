package slurm

import (
	"context"
	"errors"
	"strings"
)

// Partition is a partition as slurmctld has it. Which nodes are in it stands in Node.Partitions.
type Partition struct {
	Name string
	// Exclusive is OverSubscribe=EXCLUSIVE: every job is allocated whole nodes.
	Exclusive bool
}

// Partitions reads every partition, hidden ones too. ErrUnreachable.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	out, err := c.run(ctx, nil, c.scontrol, "-a", "show", "partition")
	if err != nil {
		return nil, err
	}
	return parsePartitions(out)
}

// parsePartitions reads lines of key=value words, an admin's, not a user's. A record begins where a line begins with
// PartitionName=.
func parsePartitions(out string) ([]Partition, error) {
	var list []Partition
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(line, "PartitionName="); ok {
			name, _, _ = strings.Cut(name, " ")
			list = append(list, Partition{Name: name})
			continue
		}
		for word := range strings.FieldsSeq(line) {
			mode, ok := strings.CutPrefix(word, "OverSubscribe=")
			if !ok {
				continue
			}
			if len(list) == 0 {
				return nil, errors.New("scontrol shows a partition without a name")
			}
			list[len(list)-1].Exclusive = mode == "EXCLUSIVE"
		}
	}
	return list, nil
}
