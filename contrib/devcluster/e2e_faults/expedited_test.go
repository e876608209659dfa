//go:build e2e

package e2efaults

import (
	"encoding/json"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// TestExpedited makes the node of a job fail that was submitted with --requeue=expedite, so that the job is requeued.
// While it waits for the other node, squeue shows it as EXPEDITING. It must get the next GPU, before a job that was
// submitted earlier.
func TestExpedited(t *testing.T) {
	s := start(t, cluster.Options{
		Nodes: 2, GPUs: 1,
		// With ReturnToService=0, a late registration of slurmd does not change the DOWN state.
		Conf: []string{"SlurmctldParameters=enable_expedited_requeue", "ReturnToService=0"},
	})
	if s.Release().Compare(slurm.Release{Year: 25, Month: 11}) < 0 {
		t.Skip("--requeue=expedite exists since Slurm 25.11")
	}
	gpu := "--gres=mig:7g.40gb:1"
	blocker := s.Submit("./hold blocker", "-w", "n2", gpu)
	job := s.Submit("./hold expedited", "--requeue=expedite", gpu)
	s.Running(blocker, job)
	s.Slice("n1", job)
	earlier := s.Submit("./hold earlier", gpu)

	if err := s.StopUnit("slurmd-n1"); err != nil {
		t.Fatal(err)
	}
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=down", "reason=test")
	s.Within("job "+job+" is expedited", func() bool { return s.State(job) == "EXPEDITING" })
	s.Within("caelum explain shows job "+job+" as the first waiting job", func() bool {
		var e plan.Explanation
		out, _, err := s.ExecNode(t.Context(), "n2", "root", "caelum", "explain", job, "--json")
		return err == nil && json.Unmarshal([]byte(out), &e) == nil && e.Verdict == "first"
	})
	s.End("blocker")
	s.Completed(blocker)
	s.Running(job)
	s.Slice("n2", job)
	if state := s.State(earlier); state != "PENDING" {
		t.Errorf("job %s is %s, and no GPU is free", earlier, state)
	}

	if err := s.StartUnit("slurmd-n1"); err != nil {
		t.Fatal(err)
	}
	s.Must("", "root", "scontrol", "update", "nodename=n1", "state=resume")
	s.Running(earlier)
	s.End("expedited")
	s.End("earlier")
	s.Completed(earlier)
	s.Within("job "+job+" ends", func() bool { return s.Lives(job) == "COMPLETED" })
	s.NothingLeft()
}
