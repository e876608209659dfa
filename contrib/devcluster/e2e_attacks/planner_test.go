//go:build e2e

package e2eattacks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// wholeGPU lists the options for a job that needs a whole GPU. An agent offers a whole GPU only if there is a job for
// it in the plan.
var wholeGPU = []string{"-p", "gpu", "--gres=gpu:1", "--mig=7g.40gb", "-t", "10"}

// another lists the options for a job with a profile that the attackers do not request, because slurmctld may allocate
// slices that are offered for the attackers' jobs to any job with the same profile.
var another = []string{"-p", "gpu", "--gres=gpu:1", "--mig=3g.20gb", "-t", "10"}

// wholeNode lists the options for a job that requests all GPUs of a node.
var wholeNode = []string{"-p", "gpu", "--gres=gpu:2", "--mig=7g.40gb", "-t", "10"}

// TestPlanner checks that another user's jobs get the idle GPUs while a user has pending jobs that
// are expensive to plan or cannot start.
func TestPlanner(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 3, Conf: []string{
		"NodeName=c[1-300] NodeAddr=127.0.0.1 Port=1 State=DOWN CPUs=64 RealMemory=256000",
		"PartitionName=cpu Nodes=n3,c[1-300] MaxTime=INFINITE State=UP",
		"SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=100", clustertest.QueueOrder,
	}})
	if err := s.StopUnit("agent-n3"); err != nil { // the test uses n3 as a node without Caelum
		t.Fatal(err)
	}
	for _, attack := range []struct {
		name string
		run  func(*testing.T, *clustertest.Site)
	}{
		{"het job of 290 nodes", hetOfManyNodes}, {"dependency", unmetDependency}, {"memory", lacksMemory},
		{"queue order", namesNodes},
	} {
		t.Run(attack.name, func(t *testing.T) { attack.run(t, s) })
		s.Must("", "root", "bash", "-c", "scancel -f $(squeue -h -o %A) 2>/dev/null; true")
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
		s.NoneDrained()
	}
}

// served submits a job as the victim, and waits until it is running.
func served(t *testing.T, s *clustertest.Site, options ...string) {
	t.Helper()
	id := s.Must(
		"",
		victim,
		slices.Concat([]string{"sbatch", "--parsable"}, options, []string{"--wrap", "sleep 600"})...)
	for end := time.Now().Add(20 * time.Second); s.State(id) != "RUNNING"; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("job %s did not get the idle GPU:\n%s", id, s.Try("", "caelum", "explain", id))
		}
	}
}

// hetOfManyNodes submits het jobs with a component that requests more nodes than are up. The agents must continue to
// publish. The victim's job is ahead of the het jobs in the queue, because slurmctld starts jobs behind a het job only
// in its backfill cycle.
func hetOfManyNodes(t *testing.T, s *clustertest.Site) {
	for range 3 {
		s.Must(
			"", attacker, "sbatch", "--nice=1000", "-p", "gpu", "--gres=gpu:1", "-t", "10", ":", "--nice=1000", "-p",
			"cpu", "-N", "290", "-t", "10", "--wrap", "true",
		)
	}
	time.Sleep(2 * time.Second) // within two seconds, every agent has read the jobs
	served(t, s, wholeGPU...)
	for _, node := range s.Nodes[:2] {
		if status, err := s.Status(node); err != nil || status.PublishError != "" {
			t.Errorf("%s: %v %s", node, err, status.PublishError)
		}
	}
}

// unmetDependency submits jobs that name a node, and that Caelum therefore holds until their slices are offered. They
// depend on a job that never runs.
func unmetDependency(t *testing.T, s *clustertest.Site) {
	never := s.Submit("true", "-p", "plain", "--hold")
	var attack []string
	for k := range 6 {
		attack = append(
			attack,
			s.Submit("true", append(wholeNode, "-w", s.Nodes[k%2], "--dependency=afterany:"+never)...),
		)
	}
	time.Sleep(2 * time.Second)
	served(t, s, another...)
	for _, id := range attack {
		if job := s.Try("", "scontrol", "show", "job", id); !strings.Contains(job, "caelum:held") {
			t.Errorf("an agent released a job with an unmet dependency:\n%s", job)
		}
	}
}

// lacksMemory submits a job without GPUs that uses most of the nodes' memory. The user's other jobs request all GPUs
// and just as much memory.
func lacksMemory(t *testing.T, s *clustertest.Site) {
	s.Running(s.Submit("sleep 600", "-p", "plain", "-w", "n1,n2", "-N2", "-n2", "--mem=200000"))
	for _, nodes := range [][]string{{"-N2"}, {"-N1", "-N1"}} {
		for _, n := range nodes {
			s.Submit("true", append(wholeNode, n, "--mem=200000")...)
		}
		time.Sleep(2 * time.Second)
		served(t, s, append(another, "--mem=100")...)
	}
}

// namesNodes submits jobs that name a node. Caelum holds these jobs, and slurmctld shows no priority for them. The
// agents must not plan them before other users' jobs.
func namesNodes(t *testing.T, s *clustertest.Site) {
	var first []string
	for k := range 4 {
		first = append(first, s.Submit(fmt.Sprintf("./hold first%d", k), wholeGPU...))
	}
	s.Running(first...)
	node := s.Must("", "root", "squeue", "-h", "-j", first[0], "-o", "%N")
	for range 3 {
		s.Submit("sleep 600", append(wholeGPU, "-w", node, "--nice=1000000")...)
	}
	id := s.Must(
		"",
		victim,
		slices.Concat([]string{"sbatch", "--parsable"}, another, []string{"--wrap", "sleep 600"})...)
	time.Sleep(2 * time.Second)
	s.End("first0")
	s.Completed(first[0])
	for end := time.Now().Add(20 * time.Second); s.State(id) != "RUNNING"; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf(
				"job %s waits behind jobs that have a lower priority and name the node:\n%s",
				id,
				s.Try("", "squeue", "-o", "%i %u %j %T %r %Q %N"),
			)
		}
	}
}
