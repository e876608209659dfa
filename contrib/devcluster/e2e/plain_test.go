//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestUnmanagedPartition submits jobs to a partition that Caelum does not manage. Because job_submit.lua does not
// change them, they request GPUs or slots but no profile. They must not drain a node, or get a slice that slurmctld has
// not counted. In this test, the agents' default profile is the largest one.
func TestUnmanagedPartition(t *testing.T) {
	s := quietly(t, shared)

	t.Run("untouched at submission", func(t *testing.T) {
		id := s.submit(t, "true", "--hold", "-p", "plain", "--gres=gpu:1", "-w", "n1")
		if gres, comment := s.requested(t, id), s.field(t, id, "AdminComment"); gres != "gpu:1" ||
			comment != "" {
			t.Errorf("TresPerNode=%s AdminComment=%s", gres, comment)
		}
		s.must(t, "", user, "scancel", id)
	})

	t.Run("CPU only", func(t *testing.T) {
		id := s.submit(t, "[[ ! -v CUDA_VISIBLE_DEVICES ]]", "-p", "plain")
		s.completed(t, id)
	})

	// slurmctld has not counted any slices for jobs that request only GPUs, so the agent does not create any. A job
	// that cannot be requeued fails. For a batch job, the agent sets a profile and requeues it, and it starts two
	// minutes later.
	t.Run("with GPUs", func(t *testing.T) {
		told := s.call(t, "", user, "", "srun", "-p", "plain", "--gres=gpu:1", "-w", "n1", "./task", "plain-told")
		if told.status == 0 || !strings.Contains(told.stderr, "no slice; request slices (--gres=gpu:1,mig:7g.40gb:1)") {
			t.Errorf("srun: status %d: %s", told.status, told.stderr)
		}
		id := s.submit(t, "srun ./task plain-requeued", "-p", "plain", "--gres=gpu:1", "-w", "n1")
		s.until(t, id, "the job is in the queue again", func(r row) bool {
			return r.state == "PENDING" && strings.Contains(s.field(t, id, "AdminComment"), "caelum:requeued=1")
		})
		within(
			t,
			"the job requests a profile",
			func() bool { return strings.Contains(s.field(t, id, "TresPerNode"), "mig:7g.40gb:1") },
		)
		s.completed(t, id)
		counts(t, s.held(t, "plain-requeued", "7g.40gb"), "1")
		s.tagged(t, id, "caelum:released")
		s.accounted(t, id, "gres/mig:7g.40gb=1")
	})
}
