//go:build e2e

package e2efaults

import (
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
)

// TestLacksSomethingElse checks a job that cannot start because memory or a licence is not available. While it waits,
// another user's short job must be able to use the idle GPU. The waiting job must start as soon as the memory or
// licence is available.
func TestLacksSomethingElse(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 2, Conf: []string{
		"SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=100", "Licenses=matlab:1",
	}})
	t.Run("memory", func(t *testing.T) {
		hog := s.Submit("sleep 600", "-p", "plain", "--mem=200000", "-t", "3")
		s.Running(hog)
		lacks := s.Submit("sleep 600", "-p", "gpu", "--gres=gpu:2", "--mig=7g.40gb", "--mem=200000", "-t", "10")
		time.Sleep(2 * time.Second) // within two seconds, every agent has read the job
		s.runs(t, stranger, "-p", "gpu", "--gres=gpu:1", "--mig=3g.20gb", "-t", "1")
		if text := s.Try("", "caelum", "explain", lacks); !strings.Contains(text, "memory free") {
			t.Errorf("caelum explain prints for the job that lacks memory:\n%s", text)
		}
		s.Must("", user, "scancel", hog)
		s.Running(lacks)
		s.Must("", user, "scancel", lacks)
	})
	t.Run("licence", func(t *testing.T) {
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
		holder := s.Submit("sleep 600", "-p", "plain", "-L", "matlab:1", "-t", "10")
		first := s.Submit("sleep 600", append(wholeGPU, "--mem=100")...)
		s.Running(holder, first)
		// The job that lacks the licence requests all slices of the idle GPU.
		lacks := s.Submit(
			"sleep 600", "-p", "gpu", "--gres=gpu:2", "--mig=3g.20gb", "--mem=100", "-t", "1", "-L", "matlab:1",
		)
		time.Sleep(2 * time.Second)
		s.runs(t, stranger, "-p", "gpu", "--gres=gpu:1", "--mig=4g.20gb", "-t", "1")
		if text := s.Try("", "caelum", "explain", lacks); !strings.Contains(text, "matlab") {
			t.Errorf("caelum explain prints for the job that lacks a licence:\n%s", text)
		}
		s.Must("", user, "scancel", holder)
		s.Running(lacks)
		s.Must("", user, "scancel", lacks, first)
	})
	s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	s.NothingLeft()
}

// runs submits a job with a slice as a user, waits until it is running, and ends it.
func (s *site) runs(t *testing.T, who string, options ...string) {
	t.Helper()
	args := append(append([]string{"sbatch", "--parsable", "--mem=100"}, options...), "--wrap", "sleep 600")
	id := s.Must("", who, args...)
	for end := time.Now().Add(30 * time.Second); s.State(id) != "RUNNING"; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf(
				"a job waits although a GPU is idle:\n%s\n%s",
				s.Try("", "squeue", "-o", "%A %u %T %r %Q %N"),
				s.Try("", "caelum", "explain", id),
			)
			break
		}
	}
	s.Must("", "root", "scancel", id)
	s.Within("the job has ended", func() bool { return s.Try("", "squeue", "-h", "-u", who) == "" })
}
