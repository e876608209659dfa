//go:build e2e

package e2eattacks

import (
	"encoding/json"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/node/api"
)

// TestUncountedSlice checks jobs that request GPUs but no slices, and that a user moves into the managed partition, or
// submits to one that job_submit.lua does not manage. They must not get a slice that slurmctld has not counted, because
// limits and billing would not include it.
func TestUncountedSlice(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	for _, attack := range []struct {
		name, update string
		options      []string
	}{
		{"moved in, --gres", "Partition=gpu", []string{"-p", "plain", "--gres=gpu:1"}},
		{"moved in, --gpus", "Partition=gpu", []string{"-p", "plain", "--gpus=1"}},
		{"moved in, cannot be requeued", "Partition=gpu", []string{"-p", "plain", "--gres=gpu:1", "--no-requeue"}},
		{"unmanaged", "Partition=plain", []string{"-p", "plain", "--gres=gpu:2", "--no-requeue"}},
	} {
		id := s.Submit("sleep 600", append(attack.options, "--hold")...)
		// job_submit.lua may reject the update. A rejected update does not change the job.
		_, stderr, err := s.Exec(t.Context(), attacker, "scontrol", "update", "job="+id, attack.update)
		s.Must("", attacker, "scontrol", "release", id)
		held, job := decided(t, s, id)
		t.Logf("%s: scontrol returned %v %s, and the job holds %d slices",
			attack.name, err, strings.TrimSpace(stderr), len(held))
		for _, slice := range held {
			if !strings.Contains(job, "gres/mig:"+slice.Profile+"=") {
				t.Errorf("%s: the job holds %+v, which slurmctld has not counted:\n%s", attack.name, slice, job)
			}
		}
		s.Must("", attacker, "scancel", id)
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	}
	s.NoneDrained()
}

// decided waits until a job holds slices, was requeued, has failed, or waits because of a limit on slices. It returns
// the job's slices and slurmctld's record of the job.
func decided(t *testing.T, s *clustertest.Site, id string) (held []api.Slice, job string) {
	s.Within("job "+id+" is decided", func() bool {
		job = s.Must("", "root", "scontrol", "show", "job", id)
		if strings.Contains(job, "caelum:requeued=") || strings.Contains(job, "JobState=FAILED") ||
			strings.Contains(job, "Reason=AssocGrpGRES") {
			return true
		}
		var lease api.Lease
		out, _, err := s.ExecNode(t.Context(), "n1", "root", "caelum", "job", id, "--json")
		if err != nil || json.Unmarshal([]byte(out), &lease) != nil {
			return false
		}
		held = lease.Slices
		return len(held) > 0
	})
	return held, job
}
