//go:build e2e

package e2efaults

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// wholeGPU lists the options of a job that requests a whole GPU.
var wholeGPU = []string{"-p", "gpu", "--gres=gpu:1", "--mig=7g.40gb", "-t", "10"}

// het submits a het job with two components, which request a whole GPU each, and returns the ids of the components.
func (s *site) het(options ...string) (leader, other string) {
	args := append([]string{"sbatch", "--parsable"}, options...)
	args = append(append(append(args, wholeGPU...), ":"), wholeGPU...)
	leader = s.Must("", user, append(args, "--wrap", "sleep 600")...)
	id, err := strconv.Atoi(leader)
	if err != nil {
		s.t.Fatal(err)
	}
	return leader, strconv.Itoa(id + 1)
}

// component returns a component's state. For the id of the first component, squeue lists both.
func (s *site) component(id string) string {
	for line := range strings.Lines(s.Try("", "squeue", "-h", "-t", "all", "-o", "%A %T")) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == id {
			return f[1]
		}
	}
	return ""
}

// bothRun waits until both components run.
func (s *site) bothRun(leader, other string) {
	s.t.Helper()
	s.Within("both components run", func() bool {
		return s.component(leader) == "RUNNING" && s.component(other) == "RUNNING"
	})
}

// TestIncompleteHetJob checks a het job with one component that is held or has ended. The other component must not
// block an idle GPU that another user needs, and `caelum explain` must show why it does not start. Once the held
// component is released, the het job must start.
func TestIncompleteHetJob(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1})
	t.Run("one component is held", func(t *testing.T) {
		leader, other := s.het("-H")
		s.Must("", user, "scontrol", "release", other)
		s.othersRun(t)
		text := s.Try("", "caelum", "explain", other)
		if !strings.Contains(text, "starts together with job "+leader+"+0") {
			t.Errorf("caelum explain prints for the released component:\n%s", text)
		}
		s.Must("", user, "scontrol", "release", leader+"+0")
		s.bothRun(leader, other)
		s.Must("", user, "scancel", leader)
	})
	t.Run("a node failed", func(t *testing.T) {
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
		leader, other := s.het("--requeue")
		s.bothRun(leader, other)
		node := s.Nodes[0]
		if s.Must("", "root", "squeue", "-h", "-j", other, "-o", "%N") == node {
			node = s.Nodes[1]
		}
		s.Must("", "root", "scontrol", "update", "nodename="+node, "state=down", "reason=test")
		s.Within("one component waits and the other component has ended", func() bool {
			if s.component(other) == "RUNNING" { // Slurm 26.05 does not end the other component
				s.Try("", "scancel", leader+"+1")
			}
			ended := []string{"FAILED", "CANCELLED"}
			return s.component(leader) == "PENDING" && slices.Contains(ended, s.component(other))
		})
		s.Try("", "scontrol", "update", "nodename="+node, "state=resume")
		// Slurm 22.05 does not start a requeued job for at least two minutes.
		s.Must("", "root", "scontrol", "update", "job="+leader+"+0", "starttime=now")
		s.Within(
			"the nodes are up",
			func() bool { return s.Try("", "sinfo", "-h", "-p", "plain", "-o", "%T") == "idle" },
		)
		s.othersRun(t)
		text := s.Try("", "caelum", "explain", leader)
		if !strings.Contains(text, "can never start") || !strings.Contains(text, "job "+leader+"+1 has ended") {
			t.Errorf("caelum explain prints for the remaining component:\n%s", text)
		}
		s.Must("", "root", "scancel", leader)
	})
	s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	s.NothingLeft()
}

// TestHetPriorities checks a het job whose components have different priorities, because the user released the
// components one after another. Jobs whose priorities are between those of the components must be able to run on every
// GPU, and the het job must start after the other jobs.
func TestHetPriorities(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1, Conf: []string{clustertest.QueueOrder}})
	leader, other := s.het("-H")
	s.Must("", user, "scontrol", "release", other)
	const jobs = 4
	var ids []string
	for range jobs {
		ids = append(
			ids,
			s.Must("", stranger, append(append([]string{"sbatch", "--parsable"}, wholeGPU...), "--wrap", "sleep 4")...),
		)
	}
	s.Must("", user, "scontrol", "release", leader+"+0")
	together := 0
	s.Within("the het job runs", func() bool {
		together = max(together, len(strings.Fields(s.Try("", "squeue", "-h", "-u", stranger, "-t", "R", "-o", "%A"))))
		return s.component(leader) == "RUNNING" && s.component(other) == "RUNNING"
	})
	if together != len(s.Nodes) {
		t.Errorf("%d whole-GPU jobs ran at the same time on %d GPUs", together, len(s.Nodes))
	}
	for _, id := range ids {
		if state := s.State(id); state == "PENDING" {
			t.Errorf("job %s was submitted before the release of the het job, but started after the het job", id)
		}
	}
	s.Must("", user, "scancel", leader)
	s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	s.NothingLeft()
}

// othersRun submits, as another user, one job for every GPU of the cluster, and ends them when all are running.
func (s *site) othersRun(t *testing.T) {
	t.Helper()
	time.Sleep(3 * time.Second) // within three seconds, slurmctld and every agent have processed the queue
	var ids []string
	for range s.Nodes {
		ids = append(
			ids,
			s.Must(
				"",
				stranger,
				append(append([]string{"sbatch", "--parsable"}, wholeGPU...), "--wrap", "sleep 600")...),
		)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		running := 0
		for _, id := range ids {
			if s.State(id) == "RUNNING" {
				running++
			}
		}
		if running == len(ids) {
			break
		}
		if time.Now().After(end) {
			t.Errorf(
				"%d of %d jobs run on idle GPUs:\n%s",
				running,
				len(ids),
				s.Try("", "squeue", "-o", "%i %u %T %r %Q %N"),
			)
			break
		}
	}
	s.Must("", "root", append([]string{"scancel"}, ids...)...)
	s.Within("the other user's jobs have ended", func() bool { return s.Try("", "squeue", "-h", "-u", stranger) == "" })
}
