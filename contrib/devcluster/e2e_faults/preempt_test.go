//go:build e2e

package e2efaults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/failpoint"
)

// onSlice requests one slice in a partition that the decision table does not list.
func onSlice(partition, profile string, more ...string) []string {
	return append([]string{"-p", partition, "--gres=gpu:1,mig:" + profile + ":1"}, more...)
}

// TestPreempt fills two nodes with small slices, and then submits jobs that need whole GPUs to a partition of a higher
// tier. The watcher must make room: first on n1 by requeueing jobs, and then for a job on both nodes by cancelling the
// jobs on n2, an array, after their grace time. It is killed after each sixth job that it has stopped,
// and the next watcher must stop the others.
func TestPreempt(t *testing.T) {
	const nodes = " Nodes=n[1-2],mig-catalog[1-2] MaxTime=INFINITE State=UP"
	s := start(t, cluster.Options{
		Nodes: 2, GPUs: 1, AgentConfig: "testdata/preempt.yaml",
		AgentEnv: []string{"CAELUM_FAILPOINT=" + failpoint.PreemptStopped + ":6"},
		Conf: []string{
			"PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", "PreemptExemptTime=00:00:05",
			"PartitionName=high PriorityTier=10" + nodes,
			"PartitionName=cancel PreemptMode=CANCEL GraceTime=3" + nodes,
		},
	})
	var low []string
	for range 7 {
		low = append(low, s.Submit("sleep 600", "-x", "n2", "--gres=mig:1g.5gb:1", "-t", "30", "--requeue"))
	}
	const warned = `trap 'date +%s > warned.$SLURM_JOB_ID' TERM; while :; do sleep 0.2; done`
	s.Write("warned", "#!/bin/bash\n"+warned+"\n")
	array := s.Submit("srun ./warned", onSlice("cancel", "1g.5gb", "-x", "n1", "--array=0-6", "-t", "30")...)
	s.Running(low...)
	began := time.Now()
	for k := range 7 {
		s.Running(array + "_" + string(rune('0'+k)))
	}
	first := s.Submit("sleep 600", onSlice("high", "7g.40gb", "-x", "n2", "-t", "30")...)
	s.Within("job "+first+" runs", func() bool { return s.State(first) == "RUNNING" })
	t.Logf("the first preemptor runs after %.1f s", time.Since(began).Seconds())
	if state := s.State(array + "_0"); state != "RUNNING" {
		t.Errorf("a job on the other node is %s", state)
	}
	for _, id := range low {
		if job := s.Must("", "root", "scontrol", "show", "job", id); !strings.Contains(job, " Restarts=1 ") {
			t.Errorf("job %s was not requeued exactly once:\n%s", id, job)
		}
	}
	explained := s.Must("", "root", "caelum", "explain", low[0])
	if !strings.Contains(explained, "Job "+first+" preempted") {
		t.Errorf("caelum explain %s: %s", low[0], explained)
	}
	s.Must("", user, "scancel", first)
	began = time.Now()
	second := s.Submit("sleep 600", onSlice("high", "7g.40gb", "-N", "2", "-t", "30")...)
	s.Within("job "+second+" runs", func() bool { return s.State(second) == "RUNNING" })
	t.Logf("the second preemptor runs after %.1f s", time.Since(began).Seconds())
	for k := range 7 {
		id := array + "_" + string(rune('0'+k))
		if state := s.State(id); state != "CANCELLED" {
			t.Errorf("job %s is %s", id, state)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(s.Home(), "warned.[0-9]*")); len(found) != 7 {
		t.Errorf("%d of 7 jobs got the signal of their grace time", len(found))
	}
	if log, err := s.Log("watcher"); err != nil || strings.Count(log, `"step":"stop"`) != 12 {
		// The watcher was killed twice, before it could log the sixth and the twelfth of the fourteen stops.
		t.Errorf("the watcher logged %d stops, %v", strings.Count(log, `"step":"stop"`), err)
	}
	os.Remove(filepath.Join(s.Home(), "warned"))
	s.Must("", "root", "scancel", "-u", user)
	s.NoneDrained()
	s.NothingLeft()
}
