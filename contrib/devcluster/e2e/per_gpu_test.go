//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestPerGPU checks that all slices of a node can be used although the partition's DefCpuPerGPU and DefMemPerGPU are
// those of whole GPUs.
func TestPerGPU(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 2, Conf: []string{
		"SelectTypeParameters=CR_Core_Memory", "DefCpuPerGPU=16", "DefMemPerGPU=60000",
	}})
	s.Must("", "root", "caelum", "decisions", "set", "per_gpu", "gpu", "16", "60000")
	var ids []string
	for range 14 {
		ids = append(ids, s.Submit("sleep 300", "--gres=gpu:1", "--mig=1g.5gb", "-t", "10"))
	}
	s.Running(ids...)
	show := s.Must("", "root", "scontrol", "show", "job", ids[0])
	if !strings.Contains(show, "NumCPUs=2 ") || !strings.Contains(show, "mem=7500M") {
		t.Errorf("a seventh of 16 CPUs and an eighth of 60000 MiB:\n%s", show)
	}
}
