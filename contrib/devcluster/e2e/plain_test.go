//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// In the partition plain job_submit.lua leaves jobs as they are: they have slots and no size, and what slurmctld started must
// not break a node. The agents' default here is the largest profile.
func TestUnmanagedPartition(t *testing.T) {
	s := quietly(t, shared)

	t.Run("untouched at submission", func(t *testing.T) {
		id := s.submit(t, "true", "--hold", "-p", "plain", "--gres=gpu:1", "-w", "n1")
		if gres, comment := s.field(t, id, "TresPerNode"), s.field(t, id, "AdminComment"); gres != "gres:gpu:1" || comment != "" {
			t.Errorf("TresPerNode=%s AdminComment=%s", gres, comment)
		}
		s.must(t, "", user, "scancel", id)
	})

	t.Run("CPU only", func(t *testing.T) {
		id := s.submit(t, "[[ ! -v CUDA_VISIBLE_DEVICES ]]", "-p", "plain")
		s.completed(t, id)
	})

	t.Run("with room", func(t *testing.T) {
		id := s.submit(t, "srun ./task plain-room", "-p", "plain", "--gres=gpu:1", "-w", "n1")
		s.completed(t, id)
		counts(t, s.held(t, "plain-room", "7g.40gb"), "1")
	})

	// Without room a batch job goes back to the queue, with a size now, and starts when there is.
	t.Run("without room", func(t *testing.T) {
		blockers := []string{
			s.submit(t, "./task plain-blockers 2 600", "--gres=mig:4g.20gb:1", "-w", "n1"),
			s.submit(t, "./task plain-blockers 2 600", "--gres=mig:7g.40gb:1", "-w", "n1"),
		}
		s.holding(t, "plain-blockers", 2)
		told := s.call(t, "", user, "", "srun", "-p", "plain", "--gres=gpu:1", "-w", "n1", "./task", "plain-told")
		if told.status == 0 || !strings.Contains(told.stderr, "no room on n1 for 7g.40gb:1") {
			t.Errorf("an srun, which cannot be requeued: status %d: %s", told.status, told.stderr)
		}
		id := s.submit(t, "srun ./task plain-requeued", "-p", "plain", "--gres=gpu:1", "-w", "n1")
		s.until(t, id, "it is back in the queue", func(r row) bool {
			return r.state == "PENDING" && strings.Contains(s.field(t, id, "AdminComment"), "caelum:requeued=1")
		})
		s.marked(t, id, "caelum:held")
		// An agent gives it a size once it may start again.
		within(t, "it has a size", func() bool { return strings.Contains(s.field(t, id, "TresPerNode"), "mig:7g.40gb:1") })
		if r, _ := s.row(t, id); r.state != "PENDING" {
			t.Errorf("it is %+v while there is no room", r)
		}
		s.must(t, "", user, "scancel", blockers[0], blockers[1])
		s.completed(t, id)
		counts(t, s.held(t, "plain-requeued", "7g.40gb"), "1")
		s.marked(t, id, "caelum:released")
		s.accounted(t, id, "gres/mig:7g.40gb=1")
	})
}
