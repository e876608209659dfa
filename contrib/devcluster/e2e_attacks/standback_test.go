//go:build e2e

package e2eattacks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// TestStandsBack checks a job that requests more memory than any real node has, which slurmctld accepts because a node
// that is down has enough. The agents cannot detect the excessive request, because squeue shows the memory of a
// different node for --mem=0. They offer the job's slices for three minutes. Afterwards, another user's job must get
// them, and caelum explain must show the reason.
func TestStandsBack(t *testing.T) {
	bigger := strings.Replace(huge, "RealMemory=256000", "RealMemory=512000", 1)
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1, Conf: []string{bigger, hugePartition}})
	began := time.Now()
	stuck := s.Submit("true", slices.Concat(wholeGPU, []string{"-p", "gpu,huge", "--mem=300000"})...)
	s.Within("the slice of the job is offered", func() bool {
		return strings.Contains(s.Try("", "caelum", "explain", stuck), "on offer")
	})
	id := s.Must(
		"",
		victim,
		slices.Concat([]string{"sbatch", "--parsable"}, another, []string{"--wrap", "sleep 600"})...)
	for s.State(id) != "RUNNING" {
		if time.Since(began) > 4*time.Minute {
			t.Fatalf("job %s did not get the idle GPU:\n%s", id, s.Try("", "caelum", "explain", stuck))
		}
		time.Sleep(time.Second)
	}
	t.Logf("another job got the GPU after %v", time.Since(began).Round(time.Second))
	text := s.Try("", "caelum", "explain", stuck)
	if !strings.Contains(text, "the agents plan the job after all other jobs") {
		t.Errorf("caelum explain prints:\n%s", text)
	}
	if state := s.State(stuck); state != "PENDING" {
		t.Errorf("the state of the attacker's job is %s, not PENDING", state)
	}
	s.NoneDrained()
}
