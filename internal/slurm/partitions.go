package slurm

import (
	"context"
	"errors"
	"strings"
)

// Partition is slurmctld's record of a partition. Node.Partitions lists a node's partitions.
type Partition struct {
	Name string
	// Exclusive is true if every job in the partition gets whole nodes, which is the case with
	// OverSubscribe=EXCLUSIVE and, since 26.05, with Exclusive=NODE or Exclusive=TOPO (docs/slurm-releases.md, "Whole
	// nodes").
	Exclusive bool
}

// Partitions reads all partitions, including hidden ones. Errors: ErrUnreachable.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	out, err := c.run(ctx, nil, c.scontrol, "-a", "show", "partition")
	if err != nil {
		return nil, err
	}
	return parsePartitions(out)
}

// parsePartitions parses lines of key=value words, which only administrators can change. Each record starts with a
// line that begins with PartitionName=.
func parsePartitions(out string) ([]Partition, error) {
	var list []Partition
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(line, "PartitionName="); ok {
			name, _, _ = strings.Cut(name, " ")
			list = append(list, Partition{Name: name})
			continue
		}
		for word := range strings.FieldsSeq(line) {
			key, mode, _ := strings.Cut(word, "=")
			if key != "OverSubscribe" && key != "Exclusive" {
				continue
			}
			if len(list) == 0 {
				return nil, errors.New("scontrol shows a partition without a name")
			}
			if mode == "EXCLUSIVE" || mode == "NODE" || mode == "TOPO" {
				list[len(list)-1].Exclusive = true
			}
		}
	}
	return list, nil
}
