//go:build e2e

package e2eattacks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/core/eligible"
	"caelum/internal/slurm"
)

// The nodes huge[1-2] are never up. Like badly configured catalogue nodes, they have more resources than the real ones.
const (
	huge = "NodeName=huge[1-2] NodeAddr=127.0.0.1 Port=1 State=DOWN CPUs=256 Sockets=128 CoresPerSocket=1 " +
		"ThreadsPerCore=2 RealMemory=256000 TmpDisk=100000 Gres=gpu:a100:14,mig:7g.40gb:2"
	hugePartition = "PartitionName=huge Nodes=huge[1-2] MaxTime=INFINITE State=UP"
)

// TestConstraints submits jobs that request resources that only catalogue nodes have. slurmctld accepts the jobs, but
// never starts them. The agents must not reserve slices for these jobs while another user's job waits.
func TestConstraints(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 2, GPUs: 2, Conf: []string{huge, hugePartition}})
	for node, features := range map[string]string{"n1": "fast", "n2": "big", "mig-catalog[1-2]": "fast,big"} {
		s.Must(
			"",
			"root",
			"scontrol",
			"update",
			"nodename="+node,
			"AvailableFeatures="+features,
			"ActiveFeatures="+features,
		)
	}
	for _, attack := range [][]string{
		{"-C", "fast&big"},
		{"-C", "big,fast"},
		{"-C", "fast|big&(fast&big)"},
		{"-C", "fast&[big|big]"},
		{"-C", "fast*1&big*1"},
		{"-C", "fast*2"},
		{"-C", "(fast&big)*1"},
		{"-C", "[fast|big]"},
		{"-p", "gpu,huge", "--sockets-per-node=65"},
		{"-p", "gpu,huge", "--threads-per-core=2"},
		{"-p", "gpu,huge", "--tmp=1G"},
		{"-p", "gpu,huge", "--mincpus=65"},
	} {
		name := strings.Join(attack, " ")
		var attackers []string
		for range 4 {
			job := slices.Concat([]string{"sbatch", "--parsable", "-N2"}, wholeNode, attack, []string{"--wrap", "true"})
			id, stderr, err := s.Exec(t.Context(), attacker, job...)
			if err != nil {
				t.Logf("%s: %s", name, strings.TrimSpace(stderr)) // slurmctld rejected the attack
				continue
			}
			attackers = append(attackers, strings.TrimSpace(id))
		}
		time.Sleep(2 * time.Second) // within two seconds, every agent has read the jobs
		t.Run(name, func(t *testing.T) { served(t, s, another...) })
		for _, id := range attackers {
			if state := s.State(id); state != "PENDING" {
				t.Errorf("%s: job %s is %s", name, id, state)
			}
		}
		s.Must("", "root", "bash", "-c", "scancel -f $(squeue -h -o %A) 2>/dev/null; true")
		s.Within("the queue is empty", func() bool { return s.Try("", "squeue", "-h") == "" })
	}
	s.NoneDrained()
}

// TestConstraintsAsSlurm compares how Caelum and slurmctld evaluate constraints, for each expression and each set of
// node features.
func TestConstraintsAsSlurm(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	s.Must("", "root", "scontrol", "update", "nodename=mig-catalog1", "AvailableFeatures=a,b,c", "ActiveFeatures=a,b,c")
	met := 0
	for set := range 1 << 3 {
		features := []string{"x"}
		for k, name := range []string{"a", "b", "c"} {
			if set>>k&1 == 1 {
				features = append(features, name)
			}
		}
		list := strings.Join(features, ",")
		s.Must("", "root", "scontrol", "update", "nodename=n1", "AvailableFeatures="+list, "ActiveFeatures="+list)
		for _, text := range []string{
			"a", "a&b", "a,b", "a|b", "a|b&c", "a&b|c", "a|(b&c)", "(a|b)&c", "(a|b)&(b|c)", "(a|b)|c", "(a&b|c)&x",
			"[a|b]", "[a]", "x&[a|b]",
			"[a|b]&c", "c&[a|b]&x", "a*1", "(a|b)*1", "(a&b)*1",
		} {
			// The test has to run the job, because sbatch --test-only ignores counts and brackets (Slurm 22.05.8).
			_, stderr, err := s.Exec(
				t.Context(), attacker, "srun", "-I10", "-p", "plain", "-N1", "-n1", "-C", text, "true",
			)
			if strings.Contains(stderr, "Invalid feature specification") {
				continue // slurmctld 24.11 rejects a count after a closing parenthesis
			}
			here := eligible.LacksFeatures(slurm.ParseConstraint(text), features, 1)
			if (err == nil) != (here == "") {
				t.Errorf("for %s on %v, slurmctld returned %v %s, but Caelum returned %q",
					text, features, err, strings.TrimSpace(stderr), here)
			}
			if err == nil {
				met++
			}
		}
	}
	if met < 50 {
		t.Errorf("slurmctld accepted only %d of the expressions", met)
	}
}
