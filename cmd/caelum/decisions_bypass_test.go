package main

import (
	"context"
	"strings"
	"testing"

	"caelum/internal/slurm"
)

// partitionsOf is a slurmctld with fixed partitions and nodes.
type partitionsOf struct {
	partitions []slurm.Partition
	nodes      []slurm.Node
}

func (s partitionsOf) Partitions(context.Context) ([]slurm.Partition, error) {
	return s.partitions, nil
}
func (s partitionsOf) AllNodes(context.Context) ([]slurm.Node, error) { return s.nodes, nil }

// TestCheckBypass tests that a bypass line may name only a partition whose nodes have GPUs and no slices.
func TestCheckBypass(t *testing.T) {
	node := func(name, gres string, partitions ...string) slurm.Node {
		list, err := slurm.ParseGRES(gres)
		if err != nil {
			t.Fatal(err)
		}
		n := slurm.Node{Name: name, Gres: list, Partitions: partitions, States: []string{"IDLE"}}
		if name == "mig-catalog1" {
			n.States = []string{"FUTURE"}
		}
		return n
	}
	ctl := partitionsOf{
		[]slurm.Partition{{Name: "gpu"}, {Name: "whole"}, {Name: "both"}, {Name: "cpu"}, {Name: "reserve"}},
		[]slurm.Node{
			node("mig-catalog1", "gpu:a100:14,mig:1g.5gb:14", "gpu", "both", "reserve"),
			node("n1", "gpu:a100:14,mig:closed:56", "gpu", "both"),
			node("w1", "gpu:a100:2,mig:1g.5gb:2", "whole", "both"),
			node("w2", "", "whole", "cpu"),
		},
	}
	for name, want := range map[string]string{
		"whole":   "",
		"gpu":     "node n1 in partition gpu has slices",
		"both":    "node n1 in partition both has slices",
		"reserve": "node mig-catalog1 in partition reserve has slices",
		"cpu":     "no node in partition cpu has GPUs",
		"Whole":   `slurmctld has no partition "Whole"; the partitions are gpu, whole, both, cpu, reserve`,
	} {
		err := checkBypass(t.Context(), ctl, name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
