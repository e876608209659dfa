package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Partition is slurmctld's record of a partition. Node.Partitions lists the partitions of a node.
type Partition struct {
	Name string
	// Exclusive is true if every job in the partition is allocated whole nodes, which is the case with
	// OverSubscribe=EXCLUSIVE and, since 26.05, with Exclusive=NODE or Exclusive=TOPO (docs/slurm-releases.md, "Whole
	// nodes").
	Exclusive bool
	// Tier is PriorityTier, or -1 if it is unknown. PreemptMode is the preemption mode for jobs in the partition, in
	// upper case, for example "REQUEUE". If the partition does not set a mode, scontrol shows the cluster's mode.
	Tier        int
	PreemptMode string
	// Grace is GraceTime. QOS is the partition's QOS, or empty.
	Grace time.Duration
	QOS   string
}

// Partitions reads all partitions, including hidden ones. Errors: ErrUnreachable.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	out, err := c.run(ctx, nil, c.scontrol, "-a", "show", "partition")
	if err != nil {
		return nil, err
	}
	return parsePartitions(out)
}

// parsePartitions parses lines of key=value pairs. Only administrators can change these lines. Each record starts with
// a line that begins with PartitionName=.
func parsePartitions(out string) ([]Partition, error) {
	var list []Partition
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(line, "PartitionName="); ok {
			name, _, _ = strings.Cut(name, " ")
			list = append(list, Partition{Name: name, Tier: -1})
			continue
		}
		for word := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(word, "=")
			if !slices.Contains(partitionKeys, key) {
				continue
			}
			if len(list) == 0 {
				return nil, errors.New("scontrol shows a partition without a name")
			}
			if err := list[len(list)-1].set(key, value); err != nil {
				return nil, fmt.Errorf("partition %s: %s=%.40q: %w", list[len(list)-1].Name, key, value, err)
			}
		}
	}
	return list, nil
}

// partitionKeys lists the keys in a record that set evaluates.
var partitionKeys = []string{"OverSubscribe", "Exclusive", "PriorityTier", "PreemptMode", "GraceTime", "QoS"}

// set sets the field that corresponds to a key in a partition's record.
func (p *Partition) set(key, value string) (err error) {
	switch key {
	case "OverSubscribe", "Exclusive":
		p.Exclusive = p.Exclusive || value == "EXCLUSIVE" || value == "NODE" || value == "TOPO"
	case "PriorityTier":
		p.Tier, err = parseCount32(value)
	case "PreemptMode":
		p.PreemptMode = strings.ToUpper(value)
	case "GraceTime":
		var seconds int
		seconds, err = parseCount32(value)
		p.Grace = time.Duration(seconds) * time.Second
	case "QoS":
		if value != "N/A" {
			p.QOS = value
		}
	}
	return err
}
